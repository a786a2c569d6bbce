// Making elements, and writing amounts. Whatever comes from the cluster is inserted as text only.

/** An element with properties (`class`, `dataset`, `aria-…`, listeners as `onclick`) and children. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "dataset") Object.assign(made.dataset, value);
    else if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/**
 * Bring the children of `place` in line with `made`, and leave what is the same as it is: a selection or the
 * focus in it lives on. Listeners of what is made are lost.
 */
export function renew(place, made) {
  for (const [at, wanted] of made.entries()) {
    const there = place.childNodes[at];
    if (!there) place.append(wanted);
    else if (there.isEqualNode(wanted)) continue;
    else if (there.nodeType === Node.ELEMENT_NODE && there.nodeName === wanted.nodeName) {
      for (const { name } of [...there.attributes]) if (!wanted.hasAttribute(name)) there.removeAttribute(name);
      for (const { name, value } of wanted.attributes) if (there.getAttribute(name) !== value) there.setAttribute(name, value);
      renew(there, [...wanted.childNodes]);
    } else there.replaceWith(wanted);
  }
  while (place.childNodes.length > made.length) place.lastChild.remove();
}

const grouped = new Intl.NumberFormat("en");

export const number = (value) => grouped.format(value);

export const amount = (value, unit) => `${number(value)} ${unit}`;

export const counted = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

export const percent = (part, whole) => (whole ? `${Math.floor((100 * part) / whole)} %` : "–");

/** How long ago, in the largest unit that says enough. */
export function age(since) {
  const seconds = Math.max(0, (Date.now() - Date.parse(since)) / 1000);
  if (Number.isNaN(seconds)) return "";
  if (seconds < 60) return "less than a minute";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const COLOURS = 8;
const taken = new Map(); // namespace → colour
const used = new Array(COLOURS).fill(0);

/** A namespace's colour: by its name (FNV-1a), or the next one while another namespace has that one. */
export function colour(namespace) {
  const known = taken.get(namespace);
  if (known !== undefined) return known;
  let hash = 0x811c9dc5;
  for (let at = 0; at < namespace.length; at += 1) {
    hash = Math.imul(hash ^ namespace.charCodeAt(at), 0x01000193);
  }
  const first = ((hash ^ (hash >>> 15)) >>> 0) % COLOURS;
  const least = Math.min(...used);
  let chosen = first;
  while (used[chosen] > least) chosen = (chosen + 1) % COLOURS;
  used[chosen] += 1;
  taken.set(namespace, chosen);
  return chosen;
}
