/** A list of any length of which only the lines in sight exist. `o`: label, fill(line, row), piece(n) asks for the
 *  n-th hundred, chosen(row, place) is told what is selected. */
const TALL = 22;
function roll(parent, o) {
  const box = make("div", "rows", parent), room = make("div", "", box);
  box.tabIndex = 0; box.setAttribute("role", "listbox"); box.setAttribute("aria-label", o.label);
  let total = 0, pieces = new Map(), asked = new Set(), at = -1, wait = 0;
  const row = i => pieces.get(Math.floor(i / PIECE))?.[i % PIECE];
  function draw() {
    const first = Math.max(0, Math.floor(box.scrollTop / TALL) - 4), last = Math.min(total, first + Math.ceil((box.clientHeight || 352) / TALL) + 8);
    const lines = [];
    for (let i = first; i < last; i++) {
      const line = make("div", "row"), held = row(i);
      line.style.top = i * TALL + "px"; line.id = o.id + i; line.dataset.at = i;
      line.setAttribute("role", "option"); line.setAttribute("aria-selected", i === at); line.setAttribute("aria-posinset", i + 1); line.setAttribute("aria-setsize", total);
      if (held) o.fill(line, held); else line.textContent = "…";
      lines.push(line);
    }
    room.replaceChildren(...lines);
    clearTimeout(wait);
    wait = setTimeout(() => {                                      // what is only passed by is not asked for
      for (let p = Math.floor(first / PIECE); p * PIECE < last; p++) if (!pieces.has(p) && !asked.has(p)) { asked.add(p); o.piece(p); }
    }, 30);
  }
  function choose(i, told = true) {
    if (!total) { at = -1; return; }
    at = Math.max(0, Math.min(total - 1, i));
    const top = at * TALL;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top + TALL > box.scrollTop + box.clientHeight && box.clientHeight) box.scrollTop = top + TALL - box.clientHeight;
    box.setAttribute("aria-activedescendant", o.id + at);
    draw();
    if (told && row(at)) o.chosen(row(at), at);
  }
  box.addEventListener("scroll", () => requestAnimationFrame(draw));
  box.addEventListener("click", e => { const line = e.target.closest(".row"); if (line) choose(+line.dataset.at); });
  box.addEventListener("keydown", e => {
    const page = Math.max(1, Math.floor(box.clientHeight / TALL) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -total, End: total }[e.key];
    if (!by) return;
    e.preventDefault(); e.stopPropagation(); choose(at + by);
  });
  return {
    box, draw, choose, get at() { return at; }, get total() { return total; }, row,
    anew(n) { total = n; pieces = new Map(); asked = new Set(); at = -1; room.style.height = total * TALL + "px"; box.scrollTop = 0; draw(); },
    put(piece, rows) { pieces.set(piece, rows); draw(); if (at >= 0 && Math.floor(at / PIECE) === piece) o.chosen(row(at), at); },
  };
}

/** Put text into a box, with the words that were sought marked; nothing of it is read as HTML. */
function marked(box, text, words) {
  box.replaceChildren();
  const low = words ? text.toLowerCase() : "", need = (words || "").toLowerCase();
  let from = 0, n = 0;
  if (need && low.length === text.length) for (let i = low.indexOf(need); i >= 0 && n < 500; i = low.indexOf(need, from), n++) {
    box.append(text.slice(from, i)); make("mark", "", box, text.slice(i, i + need.length)); from = i + need.length;
  }
  box.append(text.slice(from));
  box.querySelector("mark")?.scrollIntoView({ block: "nearest" });
}
