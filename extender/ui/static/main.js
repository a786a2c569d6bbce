// Puts the page together: the stream feeds the cluster, and what changed is drawn once per frame.

import { Cluster } from "./cluster.js";
import { Details } from "./details.js";
import { counted, number } from "./dom.js";
import { followKeys } from "./keyboard.js";
import { follow } from "./live.js";
import { Rows } from "./rows.js";
import { Search } from "./search.js";
import { Legend, showTotals } from "./summary.js";
import { WaitingList } from "./waiting.js";

const by = (id) => document.getElementById(id);
const AGES = 30000; // how often "3 min" is written anew

const cluster = new Cluster();
const search = new Search(() => searched());
const field = by("search");
const rows = new Rows(by("rows"), { cluster, search });
const details = new Details(by("details"), { list: by("rows"), rows, cluster });
const keys = followKeys(by("rows"), { rows, search: field });
const legend = new Legend(by("legend"), { choose: (text) => search.set(text) });
const waiting = new WaitingList({ search });

let changed = new Set();
let waitingPods = { count: 0, pods: [] };
let isDue = false;

function due() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDue = false;
  const names = changed;
  changed = new Set();
  const shown = rows.update(names);
  const sum = showTotals(cluster, { waitingCount: waitingPods.count });
  legend.show(sum, cluster.unit);
  waiting.show(waitingPods, cluster.unit);
  showFound(shown);
  details.refresh();
  keys.keepStop();
  markPaint();
}

function showFound(shown) {
  const total = cluster.nodes.size;
  by("found").textContent = search.isActive ? `${number(shown)} of ${counted(total, "node")}` : "";
  const empty = by("empty");
  empty.hidden = shown > 0;
  if (!cluster.isComplete) empty.textContent = "Reading the cluster…";
  else if (total) empty.textContent = "No node matches. Search looks at pods, nodes, namespaces and models.";
  else empty.textContent = "No node shares GPU cards yet. A node shows here once its device plugin has published its cards.";
}

/** For whoever measures: when the first nodes, and when all of them, were there to be painted. */
function markPaint() {
  const mark = (name) => {
    if (!performance.getEntriesByName(name).length) performance.mark(name);
  };
  // A frame's callbacks run before it is painted: the next task is after it.
  const isComplete = cluster.isComplete;
  const hasNodes = cluster.nodes.size > 0;
  requestAnimationFrame(() =>
    setTimeout(() => {
      if (hasNodes) mark("first-nodes");
      if (isComplete) mark("all-nodes");
    }),
  );
}

function searched() {
  if (field.value !== search.text) field.value = search.text;
  by("only-problems").setAttribute("aria-pressed", String(search.onlyProblems));
  rows.redraw();
  due();
}

field.addEventListener("input", () => search.set(field.value));
field.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && field.value) {
    event.preventDefault();
    search.set("");
  }
});
by("only-problems").addEventListener("click", () => search.set(search.text, { onlyProblems: !search.onlyProblems }));

follow("events", {
  on: {
    begin(told) {
      cluster.begin(told);
      by("resource").textContent = told.resource;
      by("resource").title = `gpushare ${told.version}, counted in ${told.unit}`;
    },
    nodes(told) {
      cluster.change(told);
      for (const node of told.nodes) changed.add(node.name);
      due();
    },
    complete() {
      cluster.complete();
      due();
    },
    waiting(told) {
      waitingPods = told;
      due();
    },
    state({ problem }) {
      by("problem").hidden = !problem;
      by("problem").textContent = problem ? `This extender does not answer kube-scheduler now: ${problem}. What is shown may be incomplete.` : "";
    },
  },
  status(isLive, reason) {
    by("live").dataset.live = isLive ? "yes" : "no";
    by("live-text").textContent = isLive ? "Live" : `Not live: ${reason}, trying again…`;
    document.body.classList.toggle("stale", !isLive);
  },
});

setInterval(() => {
  details.refresh();
  waiting.draw();
}, AGES);
// What is scrolled to, as the focus is, stops below the bar that stays at the top.
new ResizeObserver(([{ target }]) => {
  const isSticky = getComputedStyle(target).position === "sticky";
  document.documentElement.style.scrollPaddingTop = isSticky ? `${target.offsetHeight + 4}px` : "";
}).observe(document.querySelector(".tools"));
addEventListener("resize", () => keys.keepStop(), { passive: true });
searched();
