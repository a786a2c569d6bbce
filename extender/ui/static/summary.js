// The cluster in sum, and its namespaces.

import { el, number, amount, counted, percent, colour } from "./dom.js";
import { totals } from "./cluster.js";

const MOST_NAMESPACES = 8;
const by = (id) => document.getElementById(id);

function write(id, text) {
  const place = by(id);
  if (place.textContent !== text) place.textContent = text;
}

export function showTotals(cluster, { waitingCount }) {
  const sum = totals(cluster);
  const { unit } = cluster;
  write("percent", percent(sum.used, sum.total));
  const pending = sum.pending ? `, ${number(sum.pending)} of it on no known card` : "";
  write("allocated", `${number(sum.used)} of ${amount(sum.total, unit)}${pending}`);
  by("gauge").style.width = `${sum.total ? Math.min(100, (100 * sum.used) / sum.total) : 0}%`;
  write("largest", sum.cards ? amount(sum.largest, unit) : "–");
  write("free", sum.cards ? `of ${amount(sum.free, unit)} free in all` : "");
  write("node-count", number(sum.nodes));
  const faults = [
    counted(sum.cards, "card"),
    sum.closed && `${number(sum.closed)} closed`,
    sum.unhealthy && `${number(sum.unhealthy)} unhealthy`,
  ];
  write("card-count", faults.filter(Boolean).join(" · "));
  write("pod-count", number(sum.pods));
  write("waiting-count", waitingCount ? `${number(waitingCount)} waiting` : "none waiting");
  write("problem-count", number(sum.problems));
  by("only-problems").classList.toggle("alarming", sum.problems > 0);
  document.title = sum.cards ? `${percent(sum.used, sum.total)} · gpushare` : "gpushare";
  return sum;
}

/** The namespaces that hold most; choosing one searches for it. Nothing moves under the pointer or the focus. */
export class Legend {
  constructor(list, { choose }) {
    this.list = list;
    this.choose = choose;
    this.chips = new Map(); // namespace → item
    this.rest = el("li", { class: "muted" });
    this.last = null;
    list.addEventListener("pointerleave", () => this.arrange());
    list.addEventListener("focusout", (event) => list.contains(event.relatedTarget) || this.arrange());
  }

  show({ namespaces }, unit) {
    this.last = namespaces;
    if (!this.list.matches(":hover") && !this.list.querySelector(":focus-visible")) this.arrange();
    for (const [namespace, { firstChild: chip }] of this.chips) {
      chip.title = `${namespace}: ${amount(namespaces.get(namespace) ?? 0, unit)}; search for it`;
    }
    const others = [...namespaces.keys()].filter((namespace) => !this.chips.has(namespace)).length;
    this.rest.textContent = others ? `and ${number(others)} more` : "";
  }

  arrange() {
    if (!this.last) return;
    const largest = [...this.last].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const wanted = largest.slice(0, MOST_NAMESPACES).map(([namespace]) => namespace);
    const shown = [...this.chips.keys()];
    if (shown.length === wanted.length && shown.every((namespace, at) => namespace === wanted[at])) return;
    const focused = document.activeElement;
    this.chips = new Map(wanted.map((namespace) => [namespace, this.chips.get(namespace) ?? this.chip(namespace)]));
    this.list.replaceChildren(...this.chips.values(), this.rest);
    if (this.list.contains(focused)) focused.focus({ preventScroll: true });
  }

  chip(namespace) {
    return el(
      "li",
      {},
      el(
        "button",
        { type: "button", class: "chip", onclick: () => this.choose(`${namespace}/`) },
        el("span", { class: `swatch c${colour(namespace)}`, "aria-hidden": "true" }),
        el("span", { class: "word" }, namespace),
      ),
    );
  }
}
