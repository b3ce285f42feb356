/** Many sessions: words and choices filter them, a head sorts them, a click reads one below. */
function render({ model, el }) {
  const root = make("div", "ctxkit-hand"), said = make("div", "said", root);
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  said.setAttribute("role", "status");
  const bar = make("div", "bar", root), sums = make("div", "bar", root), table = make("table", "", root), count = make("div", "soft", root);
  count.setAttribute("role", "status");
  const heads = make("div", "row board heads", root), inner = make("div", "inner");
  el.replaceChildren(root);
  const want = { sort: "started", down: true, by: "day" };
  let data = null, base = "", due = 0, serial = 0, child = null, opened = null, gone = false;
  const words = make("input", "", bar); words.type = "search"; words.name = "words"; words.placeholder = "words that a session must hold"; words.setAttribute("aria-label", words.placeholder);
  words.addEventListener("input", () => { want.words = words.value; soon(200); });
  const choose = (parent, key, label, first) => {
    const l = make("label", "", parent, label + " "), f = make("select", "", l); f.name = key;
    if (first) make("option", "", f, first).value = "";
    f.addEventListener("change", () => { want[key] = f.value; soon(0); });
    return f;
  };
  const picks = Object.fromEntries(["day", "project", "tool", "model", "agent"].map(k => [k, choose(bar, k, k, "any")]));
  const ways = choose(sums, "by", "sums by");
  for (const k of Object.keys(picks)) make("option", "", ways, k).value = k;
  const list = roll(root, { label: "sessions", id: "b" + Math.random().toString(36).slice(2) + "-", piece: n => request(n * PIECE), chosen: read,
    fill(line, row) {
      line.classList.add("board");
      row.cells.forEach((text, k) => {
        const cell = make("span", data.heads[k][2] ? "n" : "", line, k === data.spark ? "" : text);
        if (k === data.spark && row.spark.length) spark(cell, row.spark); else cell.title = k === 1 ? row.hover : text;
      });
      if (row.bad) line.classList.add("bad");
    } });
  list.box.style.height = "352px"; list.box.classList.add("framed");
  root.append(inner);
  function spark(cell, sizes) {
    const top = Math.max(...sizes, 1), step = 78 / Math.max(1, sizes.length - 1), s = node("svg", { width: 80, height: 18, "aria-hidden": "true" }, cell);
    node("polyline", { points: sizes.map((n, i) => `${(1 + i * step).toFixed(0)},${(17 - 15 * n / top).toFixed(0)}`).join(" "), fill: "none", stroke: INK[3], "stroke-width": 1.5 }, s);
  }
  const key = () => JSON.stringify([want.words || "", ...Object.keys(picks).map(k => want[k] || ""), want.sort, want.down, want.by, serial]);
  function request(from) { model.send({ kind: "rows", at: `${base}|${from}`, key: `${base}|${from}`, from, ...want }); }
  function soon(wait) { clearTimeout(due); due = setTimeout(() => { base = key(); request(0); }, wait); }
  function read(row) {
    if (opened === row.at || !read.meant) return;                  // only what somebody chose is read, not what comes first
    opened = row.at; inner.textContent = `Reading ${row.cells[1]} …`;
    model.send({ kind: "open", at: row.at, key: String(row.at) });
  }
  list.box.addEventListener("pointerdown", () => { read.meant = true; });
  list.box.addEventListener("keydown", e => { if (e.key === "Enter") { read.meant = true; opened = null; const row = list.row(list.at); if (row) read(row); } else read.meant = false; }, true);
  function headed() {
    heads.replaceChildren();
    data.heads.forEach(([name, hover, number, field], k) => {
      const b = make(field ? "button" : "span", number ? "n" : "", heads, name + (want.sort === field && field ? (want.down ? " ▾" : " ▴") : ""));
      b.title = hover;
      if (field) { b.type = "button"; b.addEventListener("click", () => { want.down = want.sort === field ? !want.down : true; want.sort = field; headed(); soon(0); }); }
    });
  }
  function fresh() {
    data = model.get("data");
    said.textContent = data.head;
    headed();
    for (const [name, f] of Object.entries(picks)) {
      const was = f.value;
      while (f.options.length > 1) f.remove(1);
      for (const [value, n] of data.ways[name]) make("option", "", f, `${value} (${num(n)})`).value = value;
      f.value = was; if (f.selectedIndex < 0) { f.value = ""; want[name] = ""; }
    }
    serial = data.serial; base = key();
    if (!fresh.seen && data.first) { fresh.seen = true; listed(data.first, 0); } else soon(0);
  }
  function listed(told, from) {
    if (!from) {
      const at = list.at, top = list.box.scrollTop;
      list.anew(told.total);
      count.textContent = told.error || (told.total === told.of ? many(told.of, "session") : `${num(told.total)} of ${many(told.of, "session")}`) + (told.usd ? ` · ${told.usd}` : "");
      tabled(table, "", told.sums[0], told.sums.slice(1));
      list.put(0, told.rows);
      list.box.scrollTop = top; if (at >= 0 && at < told.total) { read.meant = false; list.choose(at, false); }
    } else list.put(from / PIECE, told.rows);
  }
  /** The reader of one session, in this widget: it asks through us. */
  function within(state) {
    const at = {}, tell = (event, ...args) => (at[event] || []).forEach(f => f(...args));
    const part = {
      get: k => state[k], set: (k, v) => { if (state[k] !== v) { state[k] = v; tell("change:" + k); } }, save_changes() {},
      on: (k, f) => { (at[k] ||= []).push(f); }, off: (k, f) => { at[k] = (at[k] || []).filter(g => g !== f); },
      send: m => m.kind === "plotly" ? model.send(m) : model.send({ kind: "inner", m }),
    };
    const pass = (m, buffers) => { if (m?.kind === "plotly") tell("msg:custom", m, buffers); };
    model.on("msg:custom", pass);
    const end = explore({ model: part, el: inner });
    return { tell, part, end() { model.off("msg:custom", pass); end(); } };
  }
  const hear = told => {
    if (gone) return;
    if (told.kind === "rows") { const cut = String(told.key).lastIndexOf("|"); if (String(told.key).slice(0, cut) === base) listed(told, +String(told.key).slice(cut + 1)); }
    else if (told.kind === "open" && told.key === String(opened)) {
      child?.end(); child = null;
      if (told.error) inner.textContent = told.error; else child = within(told.state);
    } else if (told.kind === "inner" && child) {
      if (told.state) { child.part.set("call", told.state.call); child.part.set("data", told.state.data); }
      if (told.m) child.tell("msg:custom", told.m, []);
    }
  };
  model.on("msg:custom", hear); model.on("change:data", fresh);
  fresh();
  return () => { gone = true; clearTimeout(due); child?.end(); model.off("msg:custom", hear); model.off("change:data", fresh); };
}
