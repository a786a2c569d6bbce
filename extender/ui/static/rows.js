// The nodes as rows and their cards as bars. Rows far from the window are empty boxes of the right height:
// thousands of nodes cost no more than those that can be seen.

import { el } from "./dom.js";
import { podsOf, hasProblem } from "./cluster.js";
import { inBar, nodeParts } from "./parts.js";

const NEAR = "120% 0px"; // of the window, above and below
const FILLED_AT_ONCE = 16; // rows that are filled before the browser says which are near
const COMPACT_FROM = 40; // nodes
const NARROWEST = { roomy: 230, compact: 150 }; // pixels of a card
const BETWEEN = { roomy: 18, compact: 12 }; // pixels between two cards, as in page.css

export class Rows {
  constructor(list, { cluster, search }) {
    this.list = list;
    this.cluster = cluster;
    this.search = search;
    this.mostCards = 1;
    this.lineHeight = 58;
    this.rows = new Map(); // name → { item, node, isNear, shown }
    this.across = 1;
    this.width = 0;
    this.observer = new IntersectionObserver((entries) => this.scrolled(entries), { rootMargin: NEAR });
    new ResizeObserver((entries) => {
      this.width = entries[0].contentRect.width;
      if (this.arrange()) for (const row of this.rows.values()) if (row.isFilled) this.fill(row);
    }).observe(list);
  }

  get isCompact() {
    return this.cluster.nodes.size >= COMPACT_FROM;
  }

  /**
   * Cards of all nodes stand below each other: as many across as the largest node has, or half of it, …
   * Whether a card is not as wide as before: then every bar is due anew.
   */
  arrange() {
    const { isCompact } = this;
    const size = isCompact ? "compact" : "roomy";
    this.list.classList.toggle("compact", isCompact);
    const isNarrow = innerWidth <= 760;
    const width = this.width - (isNarrow ? 34 : isCompact ? 222 : 246);
    const most = Math.max(1, this.mostCards);
    let lines = 1;
    while (lines < most && width / Math.ceil(most / lines) < NARROWEST[size]) lines += 1;
    this.across = Math.ceil(most / lines);
    this.lineHeight = isCompact ? 42 : 58;
    const columns = Math.max(this.across, isCompact || isNarrow ? 1 : 2);
    this.list.style.setProperty("--across", columns);
    const before = this.cardWidth;
    this.cardWidth = (width - BETWEEN[size] * (columns - 1)) / columns;
    if (this.cardWidth === before) return false;
    for (const row of this.rows.values()) {
      row.isFresh = false;
      row.keys = null; // what changes its shape is not new
    }
    return true;
  }

  /** Bring the list in line with cluster and search; `changed` are names of nodes that are not as before. */
  update(changed) {
    const wanted = this.cluster.names().filter((name) =>
      this.search.matches(this.cluster.nodes.get(name), podsOf, hasProblem),
    );
    this.mostCards = 1;
    for (const node of this.cluster.nodes.values()) this.mostCards = Math.max(this.mostCards, node.devs.length);
    this.arrange();
    const keep = new Set(wanted);
    const focusNext = this.focusAfter(keep);
    for (const [name, row] of this.rows) {
      if (!keep.has(name)) {
        this.observer.unobserve(row.item);
        row.item.remove();
        this.rows.delete(name);
      }
    }
    let before = null;
    let position = 0;
    const filledAtOnce = this.isCompact ? FILLED_AT_ONCE : wanted.length;
    for (const name of wanted) {
      const row = this.rows.get(name) ?? this.make(name);
      const next = before ? before.nextElementSibling : this.list.firstElementChild;
      if (next !== row.item) this.list.insertBefore(row.item, next);
      before = row.item;
      const isChanged = !row.node || changed.has(name);
      row.node = this.cluster.nodes.get(name);
      if (isChanged) {
        row.isFresh = false;
        if (!row.isFilled) this.reserve(row);
      }
      if (row.isNear || position < filledAtOnce) this.fill(row);
      position += 1;
    }
    focusNext?.();
    return wanted.length;
  }

  /** Where the node that has the focus is about to go: what gives the focus to the next one, or the one before. */
  focusAfter(keep) {
    const item = document.activeElement?.closest("li.node");
    if (!item || !this.list.contains(item) || keep.has(item.dataset.node)) return null;
    let near = item;
    while (near && !keep.has(near.dataset.node)) near = near.nextElementSibling;
    if (!near) for (near = item; near && !keep.has(near.dataset.node); ) near = near.previousElementSibling;
    return () => {
      if (near) this.reveal(near);
      (near?.querySelector("[data-key]") ?? this.list.closest("main")).focus({ preventScroll: true });
    };
  }

  make(name) {
    const item = el("li", { class: "node", "aria-label": name, dataset: { node: name } });
    const row = { item, name, node: null, isNear: false, isFilled: false, isFresh: false, keys: null };
    this.rows.set(name, row);
    this.observer.observe(item);
    return row;
  }

  scrolled(entries) {
    for (const entry of entries) {
      const row = this.rows.get(entry.target.dataset.node);
      if (!row) continue;
      row.isNear = entry.isIntersecting;
      if (row.isNear) this.fill(row);
      else if (this.isCompact && row.isFilled && !row.item.contains(document.activeElement)) {
        row.item.style.minHeight = `${entry.boundingClientRect.height}px`;
        row.item.replaceChildren();
        row.isFilled = row.isFresh = false;
      }
    }
  }

  /** The height of a row that has nothing in it yet. */
  reserve(row) {
    const lines = Math.max(1, Math.ceil(row.node.devs.length / this.across));
    row.item.style.minHeight = `${Math.max(84, 22 + lines * this.lineHeight)}px`;
  }

  fill(row) {
    if (row.isFresh) return;
    const held = row.item.contains(document.activeElement) ? document.activeElement.dataset : null;
    const keys = new Set();
    const { cardWidth, isCompact, search } = this;
    row.item.replaceChildren(
      ...nodeParts(row.node, { unit: this.cluster.unit, cardWidth, isCompact, search, keys, before: row.keys }),
    );
    row.item.classList.toggle("closed", Boolean(row.node.closed));
    row.item.style.minHeight = "";
    row.keys = keys;
    row.isFilled = row.isFresh = true;
    if (held) {
      const card = row.item.querySelector(`.cap[data-card="${CSS.escape(held.card ?? "")}"]`);
      (this.find(held.key) ?? card ?? row.item.querySelector("[data-key]"))?.focus({ preventScroll: true });
    }
  }

  /** Everything is drawn anew where it can be seen, as after a change of the search. */
  redraw() {
    for (const row of this.rows.values()) row.isFresh = false;
    return this.update(new Set());
  }

  /** Fill a row that is about to be gone to. */
  reveal(item) {
    const row = this.rows.get(item.dataset.node);
    if (row) this.fill(row);
  }

  find(key) {
    return this.list.querySelector(`[data-key="${CSS.escape(key)}"]`);
  }

  /** What a bar, a card or a node is about: for the details. */
  subject(element) {
    const item = element.closest("li.node");
    const node = item && this.cluster.nodes.get(item.dataset.node);
    if (!node) return null;
    const { what, card: index, uid } = element.dataset;
    if (what === "node") return { what, node };
    if (what === "missing") return { what: "pod", node, pod: node.missing.find((pod) => pod.uid === uid) };
    const card = node.devs.find((each) => String(each.id) === index);
    if (!card) return null;
    if (what === "card") return { what, node, card };
    if (what === "small") return { what, node, card, pods: inBar(card, this.cardWidth).small };
    const pod = card.pods.find((each) => each.uid === uid);
    return pod ? { what: "pod", node, card, pod } : null;
  }
}
