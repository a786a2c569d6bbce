// The nodes as rows and their cards as bars. Rows far from the window are empty boxes of the right height:
// thousands of nodes cost no more than those that can be seen.

import { el, number, amount, percent, colour } from "./dom.js";
import { podsOf, problemsOf, hasProblem } from "./cluster.js";

const NEAR = "120% 0px"; // of the window, above and below
const FILLED_AT_ONCE = 16; // rows that are filled before the browser says which are near
const COMPACT_FROM = 40; // nodes
const NARROWEST = { roomy: 230, compact: 150 }; // pixels of a card
const LABEL = { pod: 46, free: 76 }; // pixels below which a part of a bar has no text in it

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
      this.arrange();
    }).observe(list);
  }

  /** Cards of all nodes stand below each other: as many across as the largest node has, or half of it, … */
  arrange() {
    const isCompact = this.cluster.nodes.size >= COMPACT_FROM;
    this.list.classList.toggle("compact", isCompact);
    const isNarrow = innerWidth <= 760;
    const width = this.width - (isNarrow ? 34 : isCompact ? 220 : 246);
    const most = Math.max(1, this.mostCards);
    let lines = 1;
    while (lines < most && width / Math.ceil(most / lines) < (isCompact ? NARROWEST.compact : NARROWEST.roomy)) lines += 1;
    this.across = Math.ceil(most / lines);
    this.lineHeight = isCompact ? 42 : 58;
    this.cardWidth = width / this.across;
    this.list.style.setProperty("--across", Math.max(this.across, isCompact || isNarrow ? 1 : 2));
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
    for (const [name, row] of this.rows) {
      if (!keep.has(name)) {
        this.observer.unobserve(row.item);
        row.item.remove();
        this.rows.delete(name);
      }
    }
    let before = null;
    let position = 0;
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
      if (row.isNear || position < FILLED_AT_ONCE) this.fill(row);
      position += 1;
    }
    return wanted.length;
  }

  make(name) {
    const item = el("li", { class: "node", dataset: { node: name } });
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
      else if (row.isFilled && !row.item.contains(document.activeElement)) {
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
    const held = row.item.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    const keys = new Set();
    row.item.replaceChildren(...nodeParts(row.node, { unit: this.cluster.unit, cardWidth: this.cardWidth, search: this.search, keys, before: row.keys }));
    row.item.classList.toggle("closed", Boolean(row.node.closed));
    row.item.style.minHeight = "";
    row.keys = keys;
    row.isFilled = row.isFresh = true;
    if (held) (this.find(held) ?? row.item.querySelector("[data-key]"))?.focus({ preventScroll: true });
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
    const pod = card.pods.find((each) => each.uid === uid);
    return pod ? { what: "pod", node, card, pod } : null;
  }
}

function nodeParts(node, { unit, cardWidth, search, keys, before }) {
  const model = sameModel(node);
  const problems = problemsOf(node, unit);
  const head = el(
    "div",
    { class: "about" },
    el(
      "h3",
      {},
      el("button", {
        type: "button",
        class: "name",
        tabindex: "-1",
        dataset: mark(keys, { what: "node", key: `node ${node.name}` }),
      }, node.name),
    ),
    el("p", { class: "share" }, el("strong", {}, percent(node.usedGPU, node.totalGPU)), ` of ${amount(node.totalGPU, node.unit || unit)}`),
    model && el("p", { class: "model", title: model }, model),
  );
  const cards = el("ul", { class: "cards", "aria-label": `Cards of ${node.name}` });
  const named = search.terms.length && [...podsOf(node)].some((pod) => search.names(pod));
  for (const card of node.devs) {
    cards.append(cardPart(node, card, { unit: node.unit || unit, isAlone: Boolean(model), cardWidth, named, search, keys, before }));
  }
  if (!node.devs.length) cards.append(el("li", { class: "none" }, "No cards published"));
  const body = el("div", { class: "body" }, cards);
  if (problems.length) {
    body.append(
      el(
        "ul",
        { class: "problems", "aria-label": `Problems of ${node.name}` },
        ...problems.map((each) =>
          el("li", { class: each.kind }, el("strong", {}, each.title), " ", el("span", {}, each.text)),
        ),
      ),
    );
  }
  if (node.missing.length) body.append(missingPart(node, { unit: node.unit || unit, keys }));
  return [head, body];
}

function cardPart(node, card, { unit, isAlone, cardWidth, named, search, keys, before }) {
  const scale = Math.max(card.totalGPU, card.usedGPU);
  const state = card.healthy ? "" : " unhealthy";
  const used = `${number(card.usedGPU)} of ${amount(card.totalGPU, unit)}`;
  const label = [
    `Card ${card.id} of ${node.name}`,
    `${used} allocated`,
    card.healthy ? `${amount(card.freeGPU, unit)} free` : `unhealthy: ${card.reason || "no reason given"}`,
    card.overCommit > 0 && `over-committed by ${amount(card.overCommit, unit)}`,
  ].filter(Boolean).join(", ");
  const bar = el("div", { class: "bar" });
  for (const pod of card.pods) bar.append(podPart(pod, { node, card, scale, unit, cardWidth, named, search, keys, before }));
  const rest = Math.max(0, card.totalGPU - card.usedGPU);
  if (rest) {
    const isRoomy = (cardWidth * rest) / scale >= LABEL.free;
    const text = card.healthy ? `${number(card.freeGPU)} free` : "not given out";
    const free = el("span", { class: "free", "aria-hidden": "true" }, isRoomy && el("span", {}, text));
    free.style.flexGrow = rest;
    bar.append(free);
  }
  if (card.overCommit > 0) {
    const end = el("span", { class: "end", title: `Here the card ends: ${amount(card.totalGPU, unit)}` });
    end.style.left = `${(100 * card.totalGPU) / scale}%`;
    bar.append(end);
  }
  return el(
    "li",
    { class: `card${state}${card.overCommit > 0 ? " over" : ""}` },
    el(
      "button",
      {
        type: "button",
        class: "cap",
        tabindex: "-1",
        "aria-label": label,
        dataset: mark(keys, { what: "card", card: card.id, key: `card ${node.name} ${card.id}` }),
      },
      el("span", { class: "index" }, `${card.id}`),
      !card.healthy && el("span", { class: "badge bad" }, "⚠", el("span", { class: "word" }, " unhealthy")),
      card.overCommit > 0 && el("span", { class: "badge bad" }, `+${number(card.overCommit)}`, el("span", { class: "word" }, " over")),
      !isAlone && card.model && el("span", { class: "cardmodel" }, card.model),
      el("span", { class: "amount" }, el("b", {}, number(card.usedGPU)), el("span", { class: "total" }, ` / ${number(card.totalGPU)}`)),
    ),
    bar,
  );
}

function podPart(pod, { node, card, scale, unit, cardWidth, named, search, keys, before }) {
  const key = `pod ${node.name} ${card.id} ${pod.uid}`;
  const classes = ["pod", `c${colour(pod.namespace)}`];
  if (!isSettled(pod)) classes.push("pending");
  if (named && !search.names(pod)) classes.push("dim");
  if (before && !before.has(key)) classes.push("new");
  const made = el(
    "button",
    {
      type: "button",
      class: classes.join(" "),
      tabindex: "-1",
      "aria-label": `Pod ${pod.namespace}/${pod.name}, ${amount(pod.usedGPU, unit)} of card ${card.id}${isSettled(pod) ? "" : `, ${standing(pod)}`}`,
      dataset: mark(keys, { what: "pod", card: card.id, uid: pod.uid, key }),
    },
    (cardWidth * pod.usedGPU) / scale >= LABEL.pod && el("span", { "aria-hidden": "true" }, pod.name),
  );
  made.style.flexGrow = Math.max(pod.usedGPU, scale / 400);
  return made;
}

function missingPart(node, { unit, keys }) {
  return el(
    "ul",
    { class: "strays", "aria-label": `Pods of ${node.name} on cards that are not there` },
    ...node.missing.map((pod, at) =>
      el(
        "li",
        {},
        el(
          "button",
          {
            type: "button",
            class: `pod loose c${colour(pod.namespace)}`,
            tabindex: "-1",
            dataset: mark(keys, { what: "missing", uid: pod.uid, key: `missing ${node.name} ${pod.uid} ${at}` }),
          },
          `${pod.namespace}/${pod.name}`,
          el("span", { class: "amount" }, ` ${amount(pod.usedGPU, unit)}, card ${pod.card}`),
        ),
      ),
    ),
  );
}

const mark = (keys, dataset) => {
  keys.add(dataset.key);
  return dataset;
};

function sameModel(node) {
  const models = new Set(node.devs.map((card) => card.model));
  return models.size === 1 ? [...models][0] : "";
}

const isSettled = (pod) => pod.standing === "seen" && pod.assigned;

/** How far a pod is with its card. */
export function standing(pod) {
  if (pod.standing === "reserved") return "bind in flight";
  if (pod.standing === "bound") return "bound just now";
  return pod.assigned ? "assigned" : "waiting for kubelet";
}
