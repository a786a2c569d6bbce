// What one row shows: the node, its cards as bars, and the pods on them, each as wide as its share.

import { el, number, amount, percent, colour } from "./dom.js";
import { allocatedOf, pendingOf, podsOf, problemsOf } from "./cluster.js";

const NARROWEST = 5; // pixels of a pod that has a part of its own
const POD_LABEL = 46; // pixels below which a pod has no text in it
const LETTER = { roomy: 7.7, compact: 7.1 }; // pixels of a digit in the widest of the fonts: none is cut off
const PADDING = { roomy: 14, compact: 10 };

/** The node's parts; `look` has `unit`, `cardWidth` (pixels), `isCompact`, `search`, `keys`, `before`. */
export function nodeParts(node, look) {
  const model = sameModel(node);
  const unit = node.unit || look.unit;
  const problems = problemsOf(node, unit);
  const pending = pendingOf(node);
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
        dataset: mark(look.keys, { what: "node", key: `node ${node.name}` }),
      }, node.name),
    ),
    el("p", { class: "share" }, el("strong", {}, percent(allocatedOf(node), node.totalGPU)), ` of ${amount(node.totalGPU, unit)}`),
    pending > 0 && el("p", { class: "share" }, `${amount(pending, unit)} on no known card`),
    model && el("p", { class: "model", title: model }, model),
  );
  const cards = el("ul", { class: "cards", "aria-label": `Cards of ${node.name}` });
  const named = look.search.terms.length && [...podsOf(node)].some((pod) => look.search.names(pod));
  for (const card of node.devs) {
    cards.append(cardPart(card, { ...look, node, unit, named, isAlone: Boolean(model) }));
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
  if (node.missing.length) body.append(missingPart(node, { unit, keys: look.keys }));
  return [head, body];
}

const scaleOf = (card) => Math.max(card.totalGPU, card.usedGPU);

/** The pods of a card that have a part of their own, and those that are too narrow for one: they share one. */
export function inBar(card, cardWidth) {
  const pods = [];
  const small = [];
  for (const pod of card.pods) {
    ((cardWidth * pod.usedGPU) / scaleOf(card) < NARROWEST ? small : pods).push(pod);
  }
  return small.length > 1 ? { pods, small } : { pods: card.pods, small: [] };
}

/** The first of the texts that has room in a part of a bar. */
function fitting(texts, { width, isCompact }) {
  const size = isCompact ? "compact" : "roomy";
  const text = texts.find((each) => each.length * LETTER[size] + PADDING[size] <= width);
  return text && el("span", { "aria-hidden": "true" }, text);
}

/** What is left on a card: the longest way to say it first. */
function leftTexts(node, card) {
  if (card.freeGPU > 0) return [`${number(card.freeGPU)} free`, number(card.freeGPU)];
  const isFull = !node.closed && card.healthy && card.usedSlots >= card.totalSlots;
  return [isFull ? "no slots left" : "not given out"];
}

function cardPart(card, look) {
  const { node, unit, cardWidth, isCompact, keys } = look;
  const scale = scaleOf(card);
  const label = [
    `Card ${card.id} of ${node.name}`,
    `${number(card.usedGPU)} of ${amount(card.totalGPU, unit)} allocated`,
    card.healthy ? `${amount(card.freeGPU, unit)} free` : `unhealthy: ${card.reason || "no reason given"}`,
    card.overCommit > 0 && `over-committed by ${amount(card.overCommit, unit)}`,
  ].filter(Boolean).join(", ");
  const bar = el("div", { class: "bar" });
  const { pods, small } = inBar(card, cardWidth);
  for (const pod of pods) bar.append(podPart(pod, { ...look, card, scale }));
  if (small.length) bar.append(smallPart(small, { ...look, card, scale }));
  const rest = Math.max(0, card.totalGPU - card.usedGPU);
  if (rest) {
    const width = (cardWidth * rest) / scale;
    bar.append(el("span", { class: "free", "aria-hidden": "true" }, fitting(leftTexts(node, card), { width, isCompact })));
  }
  if (card.overCommit > 0) {
    const end = el("span", { class: "end", title: `Here the card ends: ${amount(card.totalGPU, unit)}` });
    end.style.left = `${(100 * card.totalGPU) / scale}%`;
    bar.append(end);
  }
  return el(
    "li",
    { class: `card${card.healthy ? "" : " unhealthy"}${card.overCommit > 0 ? " over" : ""}` },
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
      !look.isAlone && card.model && el("span", { class: "cardmodel" }, card.model),
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
    (cardWidth * pod.usedGPU) / scale >= POD_LABEL && el("span", { "aria-hidden": "true" }, pod.name),
  );
  made.style.width = `${(100 * pod.usedGPU) / scale}%`;
  return made;
}

/** Pods that nobody could tell apart, or point at, as one part. */
function smallPart(pods, { node, card, scale, unit, cardWidth, isCompact, named, search, keys }) {
  const held = pods.reduce((sum, pod) => sum + pod.usedGPU, 0);
  const namespaces = new Set(pods.map((pod) => pod.namespace));
  const classes = ["pod", "small", namespaces.size === 1 ? `c${colour(pods[0].namespace)}` : "mixed"];
  if (pods.every((pod) => !isSettled(pod))) classes.push("pending");
  if (named && !pods.some((pod) => search.names(pod))) classes.push("dim");
  const width = (cardWidth * held) / scale;
  const made = el(
    "button",
    {
      type: "button",
      class: classes.join(" "),
      tabindex: "-1",
      "aria-label": `${number(pods.length)} small pods, ${amount(held, unit)} of card ${card.id}`,
      dataset: mark(keys, { what: "small", card: card.id, key: `small ${node.name} ${card.id}` }),
    },
    fitting([`${number(pods.length)} small pods`, `${number(pods.length)} pods`], { width, isCompact }),
  );
  made.style.width = `${(100 * held) / scale}%`;
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

export const isSettled = (pod) => pod.standing === "seen" && pod.assigned;

/** How far a pod is with its card. */
export function standing(pod) {
  if (pod.standing === "reserved") return "bind in flight";
  if (pod.standing === "bound") return "bound just now";
  return pod.assigned ? "assigned" : "waiting for kubelet";
}
