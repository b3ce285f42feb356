/** Columns as sent: steps between turns, inputs, and the sums that do not follow from them. */
function opened(a) {
  const n = a.inputs.length, turns = new Float64Array(n), sums = new Float64Array(n), anew = new Map(a.anew);
  for (let i = 0; i < n; i++) {
    turns[i] = i ? turns[i - 1] + (typeof a.steps === "number" ? a.steps : a.steps[i - 1]) : a.first;
    sums[i] = anew.has(i) ? anew.get(i) : (i ? sums[i - 1] : 0) + a.inputs[i];
  }
  return { name: a.name, inputs: a.inputs, turns, sums };
}

function render({ model, el }) {
  let all = [], source = null, top = 1, found = [], of = "", lined = "";
  const SHOWN = 12;
  const look = k => ({ ink: INK[k % INK.length], dash: DASH[k % DASH.length] });
  const open = () => { const data = model.get("data"); if (data !== source) { source = data; all = data.agents.map(opened); of = ""; } };
  const state = () => ["warn", "cutover", "again"].map(k => model.get(k));
  function judged() {
    const key = state().join();
    if (key !== of) { of = key; found = all.map(a => judge_turns(a.inputs, a.sums, ...state())); }
    return found;
  }
  function high() {
    let most = 0;
    for (const a of all) for (const n of a.sums) if (n > most) most = n;
    return 1.1 * Math.max(1, most, model.get("warn"), model.get("cutover"));
  }
  function lines() {                                               // thinned for the eye; the verdict is of every turn
    const room = Math.max(60, MAX_POINTS / Math.max(1, all.length));
    return all.map((a, k) => {
      const { sums } = judged()[k], x = [], y = [], hover = [];
      let last = -1;
      for (const i of thinned(sums, room)) {
        if (last >= 0 && sums[i] < sums[last]) { x.push(a.turns[i]); y.push(null); hover.push(""); }  // began anew: a gap, no fall
        x.push(a.turns[i]); y.push(sums[i]); last = i;
        hover.push(`${safe(a.name)}, turn ${num(a.turns[i])}<br>${num(sums[i])} summed, ${num(a.inputs[i])} in this turn`);
      }
      return { name: a.name, x, y, hover, marked: x.length < 2, ...look(k) };  // dots are turns that warned
    });
  }
  const view = {
    empty() { open(); return !all.length; },
    spec() {
      open(); top = high(); lined = model.get("again") ? of : "recorded";
      let lo = Infinity, hi = -Infinity;
      for (const a of all) if (a.turns.length) { lo = Math.min(lo, a.turns[0]); hi = Math.max(hi, a.turns[a.turns.length - 1]); }
      if (!(hi > lo)) [lo, hi] = Number.isFinite(lo) ? [lo - 1, lo + 1] : [0, 1];
      return { x: { title: "turn", range: s.beside(lo, hi) }, y: { title: "input tokens, summed", range: [0, top] },
        lines: lines(), marks: (source.compactions || []).slice(0, 200), mark_label: "⚡ compact" };
    },
    lines() {                                                      // only "start again" moves the lines themselves
      const now = model.get("again") ? state().join() : "recorded";
      if (now === lined) return null;
      lined = now;
      return lines();
    },
    draw(s) {
      const [warn, cut, again] = state(), guess = source.suggested, both = judged(), dots = [], crosses = [], seen = new Set();
      both.forEach((one, k) => {
        const put = (i, list, tail) => {                           // one mark a pixel is enough
          const x = s.X(all[k].turns[i]).toFixed(0), y = s.Y(one.sums[i]).toFixed(0), key = x + " " + y + tail;
          if (!seen.has(key)) { seen.add(key); list.push("M" + x + " " + y + tail); }
        };
        for (const i of one.warned) put(i, dots, "h0");
        for (const i of one.cutovers) put(i, crosses, "m-4-4l8 8m0-8l-8 8");
      });
      warned.setAttribute("d", dots.join("")); crossed.setAttribute("d", crosses.join(""));
      s.handles.warn.place(warn, warn >= cut); s.handles.cutover.place(cut, cut > warn);
      fields.warn(warn); fields.cutover(cut); fields.again(again);
      const sum = kind => both.reduce((n, one) => n + one[kind].length, 0);
      s.said.textContent = !all.length ? "The log has no input tokens of any turn."
        : `${many(sum("cutovers"), "turn")} would have cut (crosses), ${num(sum("warned"))} warned (dots).`
          + (guess && warn === guess[0] && cut === guess[1] ? " The log sets no budget, so the lines stand at 60 and 80 % of the highest sum: drag one, or type a number."
            : warn || cut ? "" : " Both lines are off: drag one up from the bottom, or type a number.");
      s.note.textContent = !all.length ? "" : again ? "Sums start again after each cut; where the record itself started again they do too, for it does not hold what would have come."
        : "Sums as recorded: they start again where the record did (dashed: its compactions).";
      const order = all.map((_, k) => k).sort((a, b) => both[b].cutovers.length - both[a].cutovers.length || both[b].warned.length - both[a].warned.length || a - b);
      const shown = order.slice(0, SHOWN), more = all.length - shown.length;
      tabled(table, more > 0 ? `The ${SHOWN} with most cutovers; ${num(more)} more.` : "", ["agent", "turns", "warned", "cut", "first cut"], shown.map(k => {
        const { warned: w, cutovers: c } = both[k];
        return [all[k].name, num(all[k].turns.length), num(w.length), num(c.length), c.length ? `turn ${num(all[k].turns[c[0]])}` : ""];
      }), i => look(shown[i]));
    },
    clicked(px, py, s) {
      let best = null;
      all.forEach((a, k) => judged()[k].sums.forEach((y, i) => {
        const d = Math.abs(s.X(a.turns[i]) - px) + Math.abs(s.Y(y) - py);
        if (!best || d < best.d) best = { d, k, i };
      }));
      if (best && best.d < 30) { s.put("picked", [best.k, best.i]); told(); }
    },
  };
  const s = stage(model, el, "input tokens of each agent, summed by turn, with a line to warn and a line for the cutover", view);
  const warned = node("path", { class: "dots", stroke: WARN, "stroke-width": 5 }, s.marks);
  const crossed = node("path", { class: "dots", stroke: STOP, "stroke-width": 1.8 }, s.marks);
  const step = () => Math.max(1, Math.round(top / 100)), fields = {};
  for (const [key, word, ink, dash, off] of [["warn", "warn", WARN, "10 4", [0, 0.49]], ["cutover", "cutover", STOP, "", [0.51, 1]]]) {
    const put = (value, done) => {
      s.put(key, Math.max(0, Math.round(value)));
      if (done && Math.abs(high() - top) > 1e-6) s.anew();          // the axis grows on release, not under the hand
    };
    s.handle(key, { word: word + " at", ink, dash, off, low: 0, high: () => Math.round(top), step, set: put,
      text: v => v > 0 ? `${word} ${num(v)}` : `${word}: off` });
    fields[key] = s.field(key, word + " at", { low: 0, set: put });
  }
  fields.again = s.toggle("again", "start again after each cut");
  const picked = make("div", "said", s.below), table = make("table", "", s.below);
  const told = () => {
    const [k, i] = model.get("picked"), a = all[k];
    picked.textContent = a && i < a.turns.length ? `${a.name}, turn ${num(a.turns[i])}: ${num(a.inputs[i])} in, ${num(a.sums[i])} summed.` : "";
  };
  for (const key of ["warn", "cutover", "again"]) s.on("change:" + key, () => s.soon());
  s.on("change:picked", told);
  return s.end;
}
