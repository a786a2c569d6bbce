// What is known of the cluster, as the extender's `inspect` says it; no document in here.

const byName = new Intl.Collator("en", { numeric: true }).compare;

export class Cluster {
  constructor() {
    this.nodes = new Map();
    this.waiting = [];
    this.unit = "";
    this.resource = "";
    this.problem = null;
    this.isComplete = false;
    this.stale = null;
    this.order = null;
  }

  /** A whole picture follows: what it does not name is gone. */
  begin({ unit, resource }) {
    this.unit = unit;
    this.resource = resource;
    this.stale = new Set(this.nodes.keys());
  }

  /** Nodes as they are now, and names of nodes that are gone. */
  change({ nodes = [], gone = [] }) {
    for (const node of nodes) {
      if (!this.nodes.has(node.name)) this.place(node.name);
      this.nodes.set(node.name, node);
      this.stale?.delete(node.name);
    }
    this.remove(gone);
  }

  /** They are told in order: sorting again after each few would take longer than all else. */
  place(name) {
    const last = this.order?.at(-1);
    if (last !== undefined && byName(last, name) < 0) this.order.push(name);
    else this.order = null;
  }

  /** The whole picture has been told. */
  complete() {
    this.remove(this.stale ?? []);
    this.stale = null;
    this.isComplete = true;
  }

  remove(names) {
    for (const name of names) if (this.nodes.delete(name)) this.order = null;
  }

  names() {
    this.order ??= [...this.nodes.keys()].sort(byName);
    return this.order;
  }
}

/** The pods on a node's cards, on missing ones, and those whose cards nobody can tell. */
export function* podsOf(node) {
  for (const card of node.devs) yield* card.pods;
  yield* node.missing;
  yield* node.unreadable ?? [];
}

/** Units that pods hold of cards that are missing, or that nobody can tell. */
export function pendingOf(node) {
  let sum = 0;
  for (const pod of node.missing) sum += pod.usedGPU;
  for (const pod of node.unreadable ?? []) sum += pod.usedGPU;
  return sum;
}

/** Units of the node that are gone: what is booked on its cards, and what is pending. As the table has it. */
export const allocatedOf = (node) => node.usedGPU + pendingOf(node);

/** What is wrong with a node, as sentences with a kind; empty where all is well. */
export function problemsOf(node, unit) {
  const found = [];
  if (node.closed) found.push({ kind: "closed", title: "Takes no new pods", text: node.closed });
  for (const pod of node.unreadable ?? []) {
    const text = `${pod.namespace}/${pod.name}: ${pod.problem}`;
    if (!node.closed?.includes(`${pod.namespace}/${pod.name}`)) {
      found.push({ kind: "closed", title: "Card unknown", text });
    }
  }
  for (const card of node.devs) {
    if (!card.healthy) {
      found.push({ kind: "unhealthy", title: `Card ${card.id} unhealthy`, text: card.reason || "no reason given" });
    }
    if (card.overCommit > 0) {
      const over = card.overCommit.toLocaleString("en");
      found.push({ kind: "over", title: `Card ${card.id} over-committed`, text: `${over} ${unit} more than it has` });
    }
  }
  if (node.missing.length) {
    const text = node.missing
      .map((pod) => `${pod.namespace}/${pod.name}${pod.card === undefined || pod.card === null ? "" : ` on card ${pod.card}`}`)
      .join(", ");
    found.push({ kind: "missing", title: "Holds cards that are not there", text });
  }
  return found;
}

/** Sums over the cluster; amounts over the nodes that count in its unit, as the table has it. */
export function totals(cluster) {
  const sum = { total: 0, used: 0, pending: 0, free: 0, largest: 0, cards: 0, unhealthy: 0, closed: 0, problems: 0 };
  const namespaces = new Map();
  const pods = new Set();
  for (const node of cluster.nodes.values()) {
    sum.cards += node.devs.length;
    if (node.closed) sum.closed += 1;
    if (hasProblem(node)) sum.problems += 1;
    for (const card of node.devs) {
      if (!card.healthy) sum.unhealthy += 1;
      for (const pod of card.pods) pods.add(pod.uid);
    }
    if (!node.totalGPU || node.unit !== cluster.unit) continue;
    sum.total += node.totalGPU;
    sum.used += allocatedOf(node);
    sum.pending += pendingOf(node);
    for (const card of node.devs) {
      sum.free += card.freeGPU;
      sum.largest = Math.max(sum.largest, card.freeGPU);
    }
    for (const pod of podsOf(node)) {
      namespaces.set(pod.namespace, (namespaces.get(pod.namespace) ?? 0) + pod.usedGPU);
    }
  }
  return { ...sum, nodes: cluster.nodes.size, pods: pods.size, namespaces };
}

export function hasProblem(node) {
  return Boolean(
    node.closed ||
      node.missing.length ||
      node.unreadable?.length ||
      node.devs.some((card) => !card.healthy || card.overCommit > 0),
  );
}
