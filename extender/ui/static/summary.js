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
  write("allocated", `${number(sum.used)} of ${amount(sum.total, unit)}`);
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

/** The namespaces that hold most; choosing one searches for it. */
export function showLegend(sum, { unit, choose }) {
  const largest = [...sum.namespaces].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  const shown = largest.slice(0, MOST_NAMESPACES);
  const legend = by("legend");
  const text = JSON.stringify([shown, largest.length]);
  if (legend.dataset.shown === text) return;
  legend.dataset.shown = text;
  legend.replaceChildren(
    ...shown.map(([namespace, held]) =>
      el(
        "li",
        {},
        el(
          "button",
          { type: "button", class: "chip", title: `${amount(held, unit)}; search for it`, onclick: () => choose(`${namespace}/`) },
          el("span", { class: `swatch c${colour(namespace)}`, "aria-hidden": "true" }),
          namespace,
        ),
      ),
    ),
    ...(largest.length > shown.length ? [el("li", { class: "muted" }, `and ${number(largest.length - shown.length)} more`)] : []),
  );
}
