// What the reader looks for, kept in the address so that it can be passed on.

export class Search {
  constructor(changed) {
    this.changed = changed;
    this.read();
    addEventListener("hashchange", () => {
      this.read();
      this.changed();
    });
  }

  read() {
    const asked = new URLSearchParams(location.hash.slice(1));
    this.take(asked.get("q") ?? "", asked.get("problems") === "1");
  }

  take(text, onlyProblems) {
    this.text = text;
    this.onlyProblems = onlyProblems;
    this.terms = text.toLowerCase().split(/\s+/).filter(Boolean);
  }

  set(text, { onlyProblems = this.onlyProblems } = {}) {
    this.take(text, onlyProblems);
    const asked = new URLSearchParams();
    if (text.trim()) asked.set("q", text);
    if (onlyProblems) asked.set("problems", "1");
    const hash = asked.toString();
    // The whole address, never "" alone: that would keep the old hash.
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    this.changed();
  }

  get isActive() {
    return this.terms.length > 0 || this.onlyProblems;
  }

  /** Whether each word is in the node's name, a model, or a pod of its. */
  matches(node, podsOf, hasProblem) {
    if (this.onlyProblems && !hasProblem(node)) return false;
    if (!this.terms.length) return true;
    const parts = ["", node.name, node.address ?? ""];
    for (const card of node.devs) parts.push(card.model, card.uuid);
    for (const pod of podsOf(node)) parts.push(`${pod.namespace}/${pod.name}`);
    return this.finds(parts.join("\n"));
  }

  /** Whether each word is in this pod's namespace and name. */
  findsPod(pod) {
    return this.finds(`\n${pod.namespace}/${pod.name}`);
  }

  finds(text) {
    const lower = text.toLowerCase();
    return this.terms.every((term) => lower.includes(whole(term)));
  }

  /** Whether one of the words names this pod. */
  names(pod) {
    const text = `\n${pod.namespace}/${pod.name}`.toLowerCase();
    return this.terms.some((term) => text.includes(whole(term)));
  }
}

/** What has a slash in it begins with the namespace: `search/` is not `research/`. */
const whole = (term) => (term.includes("/") && !term.startsWith("/") ? `\n${term}` : term);
