// One tab stop for all rows; arrows move between what is in them, by where it is on the screen.

export function followKeys(list, { rows, search }) {
  let current = null; // the key of the one tab stop

  function parts() {
    return [...list.querySelectorAll("[data-key]")];
  }

  /** Make sure that Tab leads somewhere: to where the focus was, or to the first part in sight. */
  function keepStop() {
    const stop = (current && rows.find(current)) || parts().find(isInSight) || list.querySelector("[data-key]");
    for (const other of list.querySelectorAll('[tabindex="0"]')) if (other !== stop) other.tabIndex = -1;
    if (stop) stop.tabIndex = 0;
  }

  function go(part) {
    if (!part) return;
    current = part.dataset.key;
    keepStop();
    part.focus({ preventScroll: true });
    part.scrollIntoView({ block: "nearest" });
  }

  function aside(from, step) {
    const row = [...from.closest("li.node").querySelectorAll("[data-key]")];
    const next = row[row.indexOf(from) + step];
    if (next) return next;
    const item = neighbour(from, step);
    return item && (step > 0 ? item.querySelector("[data-key]") : [...item.querySelectorAll("[data-key]")].at(-1));
  }

  function neighbour(from, step) {
    const item = from.closest("li.node");
    const next = step > 0 ? item.nextElementSibling : item.previousElementSibling;
    if (next) rows.reveal(next);
    return next;
  }

  function upOrDown(from, step) {
    const item = from.closest("li.node");
    const at = from.getBoundingClientRect();
    const next = neighbour(from, step);
    const near = [...item.querySelectorAll("[data-key]"), ...(next ? next.querySelectorAll("[data-key]") : [])];
    let best = null;
    for (const part of near) {
      const there = part.getBoundingClientRect();
      const down = step * (middle(there, "y") - middle(at, "y"));
      if (down < 6) continue;
      const away = Math.max(there.left - at.left, at.left - there.right, 0) + Math.abs(there.left - at.left) / 1000;
      if (!best || down < best.down - 6 || (down < best.down + 6 && away < best.away)) best = { part, down, away };
    }
    return best?.part;
  }

  function edge(isLast) {
    const item = isLast ? list.lastElementChild : list.firstElementChild;
    if (!item) return null;
    rows.reveal(item);
    return item.querySelector("[data-key]");
  }

  list.addEventListener("keydown", (event) => {
    const from = event.target.closest("[data-key]");
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowRight: () => aside(from, 1),
      ArrowLeft: () => aside(from, -1),
      ArrowDown: () => upOrDown(from, 1),
      ArrowUp: () => upOrDown(from, -1),
      Home: () => edge(false),
      End: () => edge(true),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    go(move());
  });

  list.addEventListener("focusin", (event) => {
    const part = event.target.closest("[data-key]");
    if (!part) return;
    current = part.dataset.key;
    keepStop();
  });

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest?.("input, textarea, [contenteditable]");
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      search.focus();
      search.select();
    }
    if (event.key === "ArrowDown" && event.target === search) {
      event.preventDefault();
      go(list.querySelector("[data-key]"));
    }
  });

  return { keepStop };
}

const middle = (box, axis) => (axis === "y" ? box.top + box.height / 2 : box.left + box.width / 2);

function isInSight(part) {
  const at = part.getBoundingClientRect();
  return at.bottom > 0 && at.top < innerHeight;
}
