// What waits and why: pods of one namespace that ask for the same and hear the same stand together.

import { el, renew, number, amount, counted, age, colour } from "./dom.js";

const AT_FIRST = 3; // groups, and names in a group
const by = (id) => document.getElementById(id);

export class WaitingList {
  constructor({ search }) {
    this.search = search;
    this.isOpen = false;
    this.open = new Set(); // groups whose pods are all named
    this.last = null;
    by("waiting-more").addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      this.draw();
    });
    by("waiting-list").addEventListener("click", (event) => {
      const group = event.target.closest("[data-group]")?.dataset.group;
      if (group === undefined) return;
      if (!this.open.delete(group)) this.open.add(group);
      this.draw();
    });
  }

  /** `told` are how many wait, and of these the oldest. Nothing is done where they and the search are as before. */
  show(told, unit) {
    if (this.last?.told === told && this.last.text === this.search.text) return;
    this.last = { told, unit, text: this.search.text };
    this.draw();
  }

  draw() {
    if (!this.last) return;
    const { told: { count, pods }, unit } = this.last;
    const isSearched = this.search.terms.length > 0;
    const found = isSearched ? pods.filter((pod) => this.search.findsPod(pod)) : pods;
    const groups = [...grouped(found)];
    const shown = this.isOpen ? groups : groups.slice(0, AT_FIRST);
    by("waiting").hidden = count === 0;
    by("waiting-title").textContent = isSearched
      ? `${number(found.length)} of ${counted(count, "waiting pod")}`
      : counted(count, "pod waits", "pods wait");
    const isCut = pods.length < count;
    by("waiting-cut").hidden = !isCut;
    by("waiting-cut").textContent = isCut ? `Only the ${number(pods.length)} oldest are listed${isSearched ? " and searched" : ""}.` : "";
    renew(by("waiting-list"), shown.map(([key, alike]) => groupPart(alike, { key, unit, isOpen: this.open.has(key) })));
    const more = by("waiting-more");
    const others = groups.slice(AT_FIRST).reduce((sum, [, alike]) => sum + alike.length, 0);
    more.hidden = others === 0;
    more.textContent = this.isOpen ? "Show fewer" : `Show ${number(others)} more`;
    more.setAttribute("aria-expanded", String(this.isOpen));
  }
}

/** What asks for the same in one namespace and hears the same, by the oldest. */
function grouped(pods) {
  const groups = new Map();
  for (const pod of pods) {
    const key = JSON.stringify([pod.namespace, pod.usedGPU, pod.slots, pod.problem, pod.fitting, pod.reasons]);
    if (groups.has(key)) groups.get(key).push(pod);
    else groups.set(key, [pod]);
  }
  return groups;
}

function groupPart(pods, { key, unit, isOpen }) {
  const [oldest] = pods;
  const named = isOpen ? pods : pods.slice(0, AT_FIRST);
  const others = pods.length - AT_FIRST;
  return el(
    "li",
    {},
    el(
      "div",
      { class: "who" },
      el("span", { class: `swatch c${colour(oldest.namespace)}`, "aria-hidden": "true" }),
      el(
        "div",
        {},
        el("div", {}, ...named.map((pod) => el("p", { class: "podname" }, el("span", { class: "muted" }, `${pod.namespace}/`), pod.name))),
        others > 0 &&
          el(
            "button",
            { type: "button", class: "link", "aria-expanded": String(isOpen), dataset: { group: key } },
            isOpen ? "name fewer" : `and ${number(others)} more like these`,
          ),
      ),
    ),
    el("span", { class: "asks" }, asks(oldest, unit), pods.length > 1 && !oldest.problem && el("span", { class: "muted" }, " each")),
    el("span", { class: "muted since" }, oldest.since ? age(oldest.since) : ""),
    el("div", { class: "why" }, ...why(oldest)),
  );
}

function asks(pod, unit) {
  if (pod.problem) return "";
  return pod.slots > 1 ? `${amount(pod.usedGPU, unit)} over ${pod.slots} cards` : amount(pod.usedGPU, unit);
}

function why(pod) {
  if (pod.problem) return [el("p", { class: "bad" }, `No node will ever take it: ${pod.problem}`)];
  if (pod.reasons === null || pod.reasons === undefined) {
    return [el("p", { class: "muted" }, "Not looked into: too many different requests wait.")];
  }
  const lines = pod.reasons.map((each) =>
    el("p", {}, el("b", {}, number(each.nodes)), ` ${each.nodes === 1 ? "node" : "nodes"}: ${each.reason}`),
  );
  if (pod.fitting > 0) {
    const fit = `${counted(pod.fitting, "node has", "nodes have")} room on a card: it is tried again soon, or its events say what else holds it up.`;
    lines.unshift(el("p", { class: "fits" }, fit));
  }
  if (!lines.length) lines.push(el("p", {}, "There is no node that shares cards."));
  return lines;
}
