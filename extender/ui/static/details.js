// What is under the pointer or has the focus, in full; kept open by a click or Enter.

import { el, renew, amount, number, age, colour } from "./dom.js";
import { allocatedOf, pendingOf, problemsOf } from "./cluster.js";
import { isSettled, standing } from "./parts.js";

const NO_LIMIT = 2147483647; // slots of a node whose device plugin announces none
const GAP = 8;
const TITLE = "details-title";
const LOWEST = 200; // pixels that the box may have even where the room above and below is less

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
    this.pin(true);
  }

  /** Kept open, it can be gone into and scrolled, by keyboard too. */
  pin(isPinned) {
    this.isPinned = isPinned;
    this.box.classList.toggle("pinned", isPinned);
    this.box.setAttribute("role", isPinned ? "dialog" : "tooltip");
    if (isPinned) this.box.tabIndex = 0;
    else this.box.removeAttribute("tabindex");
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
    this.pin(false);
    this.box.replaceChildren(...content(subject, this.cluster));
    this.box.hidden = false;
    this.box.scrollTop = 0;
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
    renew(this.box, content(subject, this.cluster));
    this.place(part);
  }

  release() {
    if (this.key) this.rows.find(this.key)?.removeAttribute("aria-describedby");
  }

  hide() {
    this.release();
    if (this.box.contains(document.activeElement)) this.rows.find(this.key)?.focus({ preventScroll: true });
    this.key = null;
    this.pin(false);
    this.box.hidden = true;
  }

  place(part = this.rows.find(this.key)) {
    if (!part) return;
    const at = part.getBoundingClientRect();
    const isOut = at.bottom < 0 || at.top > innerHeight;
    this.box.hidden = isOut && !this.isPinned;
    if (isOut) return;
    const whole = this.box.scrollHeight + this.box.offsetHeight - this.box.clientHeight;
    const below = innerHeight - at.bottom - 2 * GAP;
    const above = at.top - 2 * GAP;
    const isBelow = whole <= below || below >= above;
    const most = Math.min(Math.max(isBelow ? below : above, LOWEST), innerHeight - 2 * GAP);
    const height = Math.min(whole, most);
    const top = isBelow ? at.bottom + GAP : at.top - GAP - height;
    const last = document.documentElement.clientWidth - this.box.offsetWidth - GAP;
    this.box.style.maxHeight = `${most}px`;
    this.box.style.left = `${Math.min(Math.max(GAP, at.left), Math.max(GAP, last))}px`;
    this.box.style.top = `${Math.min(Math.max(GAP, top), innerHeight - GAP - height)}px`;
  }
}

function content({ what, node, card, pod, pods }, cluster) {
  const unit = node.unit || cluster.unit;
  if (what === "small") return aboutSmall(pods, { node, card, unit });
  if (what === "pod") return aboutPod(pod, { node, card, unit });
  if (what === "card") return aboutCard(card, { node, unit });
  return aboutNode(node, { unit });
}

function aboutPod(pod, { node, card, unit }) {
  const others = node.devs.filter((each) => each !== card && each.pods.some((other) => other.uid === pod.uid));
  return [
    el("h4", { id: TITLE }, el("span", { class: `swatch c${colour(pod.namespace)}`, "aria-hidden": "true" }), pod.name),
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
    el("h4", { id: TITLE }, `Card ${card.id}`),
    table([
      ["Node", node.name],
      card.model && ["Model", card.model],
      card.uuid && ["UUID", card.uuid],
      ["Health", card.healthy ? "healthy" : `unhealthy: ${card.reason || "no reason given"}`],
      ["Allocated", `${number(card.usedGPU)} of ${amount(card.totalGPU, unit)}`],
      card.overCommit > 0 && ["Over-committed", `by ${amount(card.overCommit, unit)}`],
      ["Free", amount(card.freeGPU, unit)],
      ["Slots", slots],
      !card.pods.length && ["Pods", "none"],
    ]),
    ...held(card.pods, unit),
  ];
}

function aboutSmall(pods, { node, card, unit }) {
  const sum = pods.reduce((all, pod) => all + pod.usedGPU, 0);
  return [
    el("h4", { id: TITLE }, `${number(pods.length)} small pods`),
    table([
      ["Node", node.name],
      ["Card", cardName(card)],
      ["Hold", `${number(sum)} of ${amount(card.totalGPU, unit)}`],
    ]),
    ...held(pods, unit),
  ];
}

/** Pods and what each of them holds of a card. */
function held(pods, unit) {
  const rows = pods.map((pod) => [
    `${pod.namespace}/${pod.name}`,
    isSettled(pod) ? amount(pod.usedGPU, unit) : `${amount(pod.usedGPU, unit)}, ${standing(pod)}`,
  ]);
  return rows.length ? [el("h5", {}, "Pods"), table(rows, "pods")] : [];
}

function aboutNode(node, { unit }) {
  return [
    el("h4", { id: TITLE }, node.name),
    table([
      node.address && ["Address", node.address],
      ["Cards", number(node.devs.length)],
      ["Allocated", `${number(allocatedOf(node))} of ${amount(node.totalGPU, unit)}`],
      pendingOf(node) > 0 && ["On no known card", amount(pendingOf(node), unit)],
      ["Unit", unit],
      ...problemsOf(node, unit).map((each) => [each.title, each.text]),
    ]),
  ];
}

const cardName = (card) => (card.model ? `${card.id}, ${card.model}` : `${card.id}`);

const when = (since) =>
  new Date(since).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });

function table(entries, kind) {
  const list = el("dl", { class: kind });
  for (const entry of entries) if (entry) list.append(el("dt", {}, entry[0]), el("dd", {}, entry[1]));
  return list;
}
