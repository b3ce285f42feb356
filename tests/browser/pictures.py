"""What a picture must not have: texts that are on each other, and texts that are cut off."""

from __future__ import annotations

from typing import Any

LOOK = """() => {
  const wrong = [], seen = e => { const s = getComputedStyle(e); return s.visibility !== 'hidden' && +s.opacity > 0.05 && e.textContent.trim(); };
  const area = r => Math.max(0, r.width) * Math.max(0, r.height);
  for (const [n, box] of [...document.querySelectorAll('[data-picture]')].entries()) {
    const name = box.dataset.picture, wide = document.documentElement.clientWidth;
    const own = box.getBoundingClientRect();
    if (own.right > wide + 1) wrong.push(`${name}: wider than the page by ${Math.round(own.right - wide)} px`);
    const texts = [...box.querySelectorAll('svg text')].filter(e => seen(e) && !e.closest('.modebar,.hoverlayer'))
      .map(e => ({ said: e.textContent.trim().slice(0, 40), r: e.getBoundingClientRect(), turned: /rotate\\((?!0)/.test(e.getAttribute('transform') || ''), svg: e.ownerSVGElement }))
      .filter(t => area(t.r) > 0);
    const tools = [...box.querySelectorAll('.modebar-group')].map(e => e.getBoundingClientRect()), title = box.querySelector('.gtitle')?.getBoundingClientRect();
    if (title && tools.some(r => area(r) && r.left < title.right && r.right > title.left && r.top < title.bottom && r.bottom > title.top)) wrong.push(`${name}: the toolbar lies on the title`);
    for (const [i, a] of texts.entries()) {
      const frame = a.svg.getBoundingClientRect();
      const out = Math.max(frame.left - a.r.left, a.r.right - frame.right, frame.top - a.r.top, a.r.bottom - frame.bottom);
      if (out > 3) wrong.push(`${name}: "${a.said}" is cut off by ${Math.round(out)} px`);
      for (const b of texts.slice(i + 1)) {
        const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left), h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
        if (w > 2 && h > 3 && w * h > 0.12 * Math.min(area(a.r), area(b.r))) wrong.push(`${name}: "${a.said}" lies on "${b.said}" (${Math.round(w)} x ${Math.round(h)} px)`);
      }
    }
  }
  return wrong;
}"""
INK = """() => {
  const light = c => { const [r, g, b] = (c.match(/[\\d.]+/g) || [0, 0, 0]).map(Number).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const dark = matchMedia('(prefers-color-scheme: dark)').matches, back = light(dark ? 'rgb(18,18,18)' : 'rgb(255,255,255)'), wrong = [];
  for (const box of document.querySelectorAll('[data-picture]')) for (const e of box.querySelectorAll('svg text')) {
    const fill = getComputedStyle(e).fill;
    if (!e.textContent.trim() || !fill.startsWith('rgb') || box.dataset.picture === 'heatmap') continue;
    const [hi, lo] = [light(fill), back].sort((a, b) => b - a), contrast = (hi + 0.05) / (lo + 0.05);
    const least = e.closest('.js-plotly-plot') ? 4 : dark ? 7 : 4.5;  // a figure of plotly has one grey for both themes
    if (contrast < least) wrong.push(`${box.dataset.picture}: "${e.textContent.trim().slice(0, 30)}" has a contrast of ${contrast.toFixed(1)}`);
  }
  return wrong;
}"""


def gallery(pictures: dict[str, str]) -> str:
    """Pieces of HTML in one page, each under its name."""
    boxes = "".join(
        f'<section><h3>{name}</h3><div data-picture="{name}">{html}</div></section>'
        for name, html in pictures.items()
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>pictures</title>'
        "<style>:root{color-scheme:light dark}body{font:14px system-ui,sans-serif;margin:12px}"
        "@media (prefers-color-scheme:dark){body{background:#121212}}"
        f"</style></head><body>{boxes}</body></html>"
    )


def faults(page: Any) -> list[str]:
    """What is wrong with the pictures of a page."""
    return [*page.evaluate(LOOK), *page.evaluate(INK)]
