// What waits and why.

import { el, number, amount, counted, age, colour } from "./dom.js";

const AT_FIRST = 3;
const by = (id) => document.getElementById(id);

export class WaitingList {
  constructor({ search }) {
    this.search = search;
    this.isOpen = false;
    this.last = null;
    by("waiting-more").addEventListener("click", () => {
      this.isOpen = !this.isOpen;
      this.show(...this.last);
    });
  }

  show({ count, pods }, unit) {
    this.last = [{ count, pods }, unit];
    const { terms } = this.search;
    const found = terms.length ? pods.filter((pod) => this.search.names(pod)) : pods;
    const shown = this.isOpen ? found : found.slice(0, AT_FIRST);
    by("waiting").hidden = count === 0 || found.length === 0;
    by("waiting-title").textContent = counted(count, "pod waits", "pods wait");
    by("waiting-list").replaceChildren(...shown.map((pod) => waitingPart(pod, unit)));
    const more = by("waiting-more");
    const others = found.length - Math.min(found.length, AT_FIRST);
    more.hidden = others === 0;
    more.textContent = this.isOpen ? "Show fewer" : `Show ${number(others)} more`;
    more.setAttribute("aria-expanded", String(this.isOpen));
  }
}

function waitingPart(pod, unit) {
  return el(
    "li",
    {},
    el(
      "div",
      { class: "who" },
      el("span", { class: `swatch c${colour(pod.namespace)}`, "aria-hidden": "true" }),
      el("span", { class: "podname" }, el("span", { class: "muted" }, `${pod.namespace}/`), pod.name),
    ),
    el("span", { class: "asks" }, asks(pod, unit)),
    el("span", { class: "muted since" }, pod.since ? age(pod.since) : ""),
    el("div", { class: "why" }, ...why(pod)),
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
