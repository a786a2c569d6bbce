// What is under the pointer or has the focus, in full; kept open by a click or Enter.

import { el, amount, number, age, colour } from "./dom.js";
import { problemsOf } from "./cluster.js";
import { standing } from "./rows.js";

const NO_LIMIT = 2147483647; // slots of a node whose device plugin announces none
const GAP = 8;

export class Details {
  constructor(box, { list, rows, cluster }) {
    this.box = box;
    this.rows = rows;
    this.cluster = cluster;
    this.key = null;
    this.isPinned = false;
    list.addEventListener("pointerover", (event) => {
      if (this.isPinned || event.pointerType === "touch") return;
      const part = event.target.closest("[data-key]");
      if (part) this.show(part);
      else this.rest();
    });
    list.addEventListener("pointerleave", () => this.isPinned || this.rest());
    list.addEventListener("focusin", (event) => {
      const part = event.target.closest("[data-key]");
      if (part && !this.isPinned) this.show(part);
    });
    list.addEventListener("focusout", (event) => {
      if (!list.contains(event.relatedTarget) && !this.isPinned) this.hide();
    });
    list.addEventListener("click", (event) => {
      const part = event.target.closest("[data-key]");
      if (part) this.toggle(part);
    });
    document.addEventListener("pointerdown", (event) => {
      if (this.isPinned && !this.box.contains(event.target) && !event.target.closest?.("[data-key]")) this.hide();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.hide();
    });
    addEventListener("scroll", () => this.key && this.place(), { passive: true });
    addEventListener("resize", () => this.key && this.place(), { passive: true });
  }

  toggle(part) {
    const wasHere = this.isPinned && this.key === part.dataset.key;
    if (wasHere) {
      this.hide();
      return;
    }
    this.show(part);
    this.isPinned = true;
    this.box.classList.add("pinned");
  }

  /** The pointer has left: back to what has the focus, if anything has. */
  rest() {
    const focused = document.activeElement?.closest?.("#rows [data-key]");
    if (focused?.matches(":focus-visible")) this.show(focused);
    else this.hide();
  }

  show(part) {
    const subject = this.rows.subject(part);
    if (!subject) return;
    this.release();
    this.key = part.dataset.key;
    this.isPinned = false;
    this.box.classList.remove("pinned");
    this.box.replaceChildren(...content(subject, this.cluster));
    this.box.hidden = false;
    part.setAttribute("aria-describedby", "details");
    this.place(part);
  }

  /** After a change of the cluster: the same subject as it is now, or nothing if it has gone. */
  refresh() {
    if (!this.key) return;
    const part = this.rows.find(this.key);
    const subject = part && this.rows.subject(part);
    if (!subject) {
      this.hide();
      return;
    }
    part.setAttribute("aria-describedby", "details");
    this.box.replaceChildren(...content(subject, this.cluster));
    this.place(part);
  }

  release() {
    if (this.key) this.rows.find(this.key)?.removeAttribute("aria-describedby");
  }

  hide() {
    this.release();
    this.key = null;
    this.isPinned = false;
    this.box.hidden = true;
  }

  place(part = this.rows.find(this.key)) {
    if (!part) return;
    const at = part.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.box;
    if (at.bottom < 0 || at.top > innerHeight) {
      this.box.hidden = !this.isPinned;
      return;
    }
    const below = at.bottom + GAP + height <= innerHeight || at.top < height + GAP;
    const left = Math.min(Math.max(GAP, at.left), Math.max(GAP, document.documentElement.clientWidth - width - GAP));
    this.box.style.left = `${left}px`;
    this.box.style.top = `${below ? at.bottom + GAP : at.top - GAP - height}px`;
  }
}

function content({ what, node, card, pod }, cluster) {
  const unit = node.unit || cluster.unit;
  if (what === "pod") return aboutPod(pod, { node, card, unit });
  if (what === "card") return aboutCard(card, { node, unit });
  return aboutNode(node, { unit });
}

function aboutPod(pod, { node, card, unit }) {
  const others = node.devs.filter((each) => each !== card && each.pods.some((other) => other.uid === pod.uid));
  return [
    el("h4", {}, el("span", { class: `swatch c${colour(pod.namespace)}`, "aria-hidden": "true" }), pod.name),
    table([
      ["Namespace", pod.namespace],
      ["Node", node.name],
      ["Card", card ? cardName(card) : `${pod.card}, which the node does not list`],
      others.length && ["Also on", others.map((each) => `card ${each.id}`).join(", ")],
      ["Holds", card ? `${number(pod.usedGPU)} of ${amount(card.totalGPU, unit)}` : amount(pod.usedGPU, unit)],
      ["State", standing(pod)],
      pod.since && ["Since", `${age(pod.since)} (${when(pod.since)})`],
    ]),
    pod.containers?.length > 0 && el("h5", {}, "Containers"),
    pod.containers?.length > 0 && table(pod.containers.map((each) => [each.name, amount(each.usedGPU, unit)])),
  ].filter(Boolean);
}

function aboutCard(card, { node, unit }) {
  const slots = card.totalSlots >= NO_LIMIT ? `${number(card.usedSlots)}, no limit` : `${number(card.usedSlots)} of ${number(card.totalSlots)}`;
  return [
    el("h4", {}, `Card ${card.id}`),
    table([
      ["Node", node.name],
      card.model && ["Model", card.model],
      card.uuid && ["UUID", card.uuid],
      ["Health", card.healthy ? "healthy" : `unhealthy: ${card.reason || "no reason given"}`],
      ["Allocated", `${number(card.usedGPU)} of ${amount(card.totalGPU, unit)}`],
      card.overCommit > 0 && ["Over-committed", `by ${amount(card.overCommit, unit)}`],
      ["Free", amount(card.freeGPU, unit)],
      ["Slots", slots],
      ["Pods", card.pods.length ? card.pods.map((pod) => `${pod.namespace}/${pod.name}`).join(", ") : "none"],
    ]),
  ];
}

function aboutNode(node, { unit }) {
  return [
    el("h4", {}, node.name),
    table([
      node.address && ["Address", node.address],
      ["Cards", number(node.devs.length)],
      ["Allocated", `${number(node.usedGPU)} of ${amount(node.totalGPU, unit)}`],
      ["Unit", unit],
      ...problemsOf(node, unit).map((each) => [each.title, each.text]),
    ]),
  ];
}

const cardName = (card) => (card.model ? `${card.id}, ${card.model}` : `${card.id}`);

const when = (since) =>
  new Date(since).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

function table(entries) {
  const list = el("dl", {});
  for (const entry of entries) if (entry) list.append(el("dt", {}, entry[0]), el("dd", {}, entry[1]));
  return list;
}
