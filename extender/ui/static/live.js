// The stream of what changes. The browser reconnects by itself after a cut; after an answer that is no
// stream, or when nothing has come for too long, this opens a new one.

const SILENCE = 12000; // the server says something at least every 5 s
const AGAIN = 3000;

/** Calls `on[event](data)` for every event, and `status(isLive, reason)` when that changes. */
export function follow(address, { on, status }) {
  let source = null;
  let watchdog = 0;
  let retry = 0;

  function listen() {
    clearTimeout(watchdog);
    watchdog = setTimeout(() => lost("nothing heard for a while"), SILENCE);
  }

  function heard() {
    listen();
    status(true, "");
  }

  function lost(reason) {
    clearTimeout(watchdog);
    clearTimeout(retry);
    source?.close();
    status(false, reason);
    retry = setTimeout(open, AGAIN);
  }

  function open() {
    source?.close();
    source = new EventSource(address);
    listen();
    source.onerror = () => lost("connection lost");
    for (const [name, take] of Object.entries(on)) {
      source.addEventListener(name, (event) => {
        heard();
        take(JSON.parse(event.data));
      });
    }
    source.addEventListener("beat", heard);
    source.addEventListener("refused", (event) => lost(JSON.parse(event.data).reason));
  }

  addEventListener("pagehide", () => {
    clearTimeout(watchdog);
    clearTimeout(retry);
    source?.close();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) open();
  });
  open();
}
