'use strict';
// A history of n events has n + 1 states: state s is what holds after event s - 1. Everything is drawn from arrays over states.
const errors = [];
addEventListener('error', (event) => errors.push(String(event.message)));
addEventListener('securitypolicyviolation', (event) => errors.push('blocked ' + event.blockedURI));
const started = performance.now();

const $ = (id) => document.getElementById(id);
const data = JSON.parse($('data').textContent);
const { events, blocks, segments, sites } = data;
const n = events.action.length, states = n + 1;
const SEGMENT_ALLOC = data.actions.indexOf('segment_alloc'), OOM = data.actions.indexOf('oom'), ALLOC = data.actions.indexOf('alloc');
const MOVE = data.actions.indexOf('move');

// Layers of the stack, from below: categories, then what is beside them.
const ROUNDING = 6, RETIRING = 7, CACHED = 8;
const NAMES = [...data.categories.slice(0, 6), 'rounding', 'retiring', 'cached'];
const ORDER = [0, 2, 1, 3, 4, 5, ROUNDING, RETIRING, CACHED];

const sums = NAMES.map(() => new Float64Array(states + 1));
const allocated = new Float64Array(states), reserved = new Float64Array(states + 1);
const blockEnd = blocks.end.map((end) => (end < 0 ? states : end));
const segmentEnd = segments.end.map((end) => (end < 0 ? states : end));
const time = new Float64Array(states); // microseconds since the first event

function prepare() {
  const span = (sum, begin, end, bytes) => { sum[begin] += bytes; sum[end] -= bytes; };
  for (let i = 0; i < blocks.begin.length; i++) {
    const begin = blocks.begin[i], end = blockEnd[i], category = blocks.category[i];
    if (category === 6) { span(sums[RETIRING], begin, end, blocks.size[i]); continue; }
    span(sums[category], begin, end, blocks.requested[i]);
    span(sums[ROUNDING], begin, end, blocks.size[i] - blocks.requested[i]);
  }
  for (let i = 0; i < segments.begin.length; i++) span(reserved, segments.begin[i], segmentEnd[i], segments.size[i]);
  for (const sum of [...sums, reserved]) for (let s = 1; s < states; s++) sum[s] += sum[s - 1];
  for (let s = 0; s < states; s++) {
    for (let k = 0; k <= ROUNDING; k++) allocated[s] += sums[k][s];
    sums[CACHED][s] = reserved[s] - allocated[s] - sums[RETIRING][s];
  }
  for (let s = 2; s < states; s++) time[s] = time[s - 1] + events.time[s - 1];
}
prepare();
const argmax = (values) => { let best = 0; for (let s = 1; s < states; s++) if (values[s] > values[best]) best = s; return best; };
const peak = { allocated: argmax(allocated), reserved: argmax(reserved) };
const oomStates = [];
for (let i = 0; i < n; i++) if (events.action[i] === OOM) oomStates.push(i + 1);

// --- words -------------------------------------------------------------------------------------------------------------
function bytes(value) {
  if (value < 1024) return value + ' B';
  let unit = -1;
  do { value /= 1024; unit++; } while (value >= 1023.95 && unit < 5);
  return value.toFixed(1) + ' ' + ['KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'][unit];
}
const count = (value) => value.toLocaleString('en-US');
function duration(us) {
  if (us < 1000) return us.toFixed(0) + ' µs';
  return us < 1e6 ? (us / 1000).toFixed(1) + ' ms' : (us / 1e6).toFixed(3) + ' s';
}
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);
const place = (site) => escape(sites[site][1]) + ':' + sites[site][2];
const shortPlace = (site) => `<span title="${place(site)}">${escape(sites[site][1].split(/[\\/]/).slice(-2).join('/'))}:${sites[site][2]}</span>`;
const row = (name, value) => `<tr><td>${name}</td><td class="n">${value}</td></tr>`;

// --- look --------------------------------------------------------------------------------------------------------------
const look = {};
function readLook() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue('--' + name).trim();
  for (const name of ['paper', 'panel', 'ink', 'dim', 'line', 'faint', 'accent', 'oom', 'free', 'free-line']) look[name] = of(name);
  look.layers = NAMES.map((_, k) => (k === CACHED ? look.free : of('c' + k)));
  look.hatch = hatch(look.free, look['free-line']);
  look.pixels = look.layers.map(pixel);
  look.hatchPixel = pixel(look['free-line']);
  look.inkPixel = pixel(look.ink);
  look.dimPixel = pixel(look.dim);
}
// `#rrggbb` as image data holds it.
function pixel(color) {
  const rgb = parseInt(color.slice(1), 16);
  return new Uint32Array(new Uint8ClampedArray([rgb >> 16, (rgb >> 8) & 255, rgb & 255, 255]).buffer)[0];
}
function hatch(ground, line) {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8;
  const c = tile.getContext('2d');
  c.fillStyle = ground; c.fillRect(0, 0, 8, 8);
  c.strokeStyle = line; c.lineWidth = 1.4;
  c.beginPath();
  for (const d of [-8, 0, 8]) { c.moveTo(d - 1, 9); c.lineTo(d + 9, -1); }
  c.stroke();
  return tile;
}
function fit(canvas, height) {
  const ratio = devicePixelRatio || 1, width = Math.max(50, canvas.clientWidth);
  if (height) canvas.style.height = height + 'px';
  const w = Math.round(width * ratio), h = Math.round((height || canvas.clientHeight) * ratio);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const c = canvas.getContext('2d');
  c.setTransform(1, 0, 0, 1, 0, 0);
  c.clearRect(0, 0, w, h);
  return { c, w, h, ratio };
}

// --- the view: a range of events or of time, and the chosen moment --------------------------------------------------------
const view = { byTime: false, lo: 0, hi: states, at: peak.allocated, block: -1, site: -1, hidden: new Set() };
// The state after the last event has some room too.
const whole = () => (view.byTime ? Math.max(1, time[n] * 1.005) : states);
function stateAt(x) {
  if (!view.byTime) return Math.min(n, Math.max(0, Math.floor(x)));
  let lo = 0, hi = n; // the last state that began at or before time x
  while (lo < hi) { const mid = (lo + hi + 1) >> 1; if (time[mid] <= x) lo = mid; else hi = mid - 1; }
  return lo;
}
const positionOf = (s) => (view.byTime ? time[Math.min(s, n)] : s);
function setView(lo, hi) {
  const all = whole(), width = Math.min(all, Math.max(view.byTime ? all / 1e6 : 8, hi - lo));
  view.lo = Math.min(Math.max(0, lo), all - width);
  view.hi = view.lo + width;
  dirty(false);
}
function choose(s, keep) {
  view.at = Math.min(n, Math.max(0, s));
  if (!keep) view.block = -1;
  const x = positionOf(view.at), width = view.hi - view.lo;
  if (x < view.lo || x > view.hi) setView(x - width / 2, x + width / 2);
  dirty();
}

// --- timeline ----------------------------------------------------------------------------------------------------------
const LEFT = 74, BOTTOM = 24, TOP = 14;
// For every pixel column the state that has most allocated, and the most reserved: no peak is lost, however far out.
function columns(width, lo, hi) {
  const best = new Int32Array(width), most = new Float64Array(width);
  let s = stateAt(lo);
  for (let x = 0; x < width; x++) {
    const next = stateAt(lo + ((x + 1) * (hi - lo)) / width);
    let at = s, top = reserved[s];
    for (let i = s + 1; i <= next; i++) {
      if (allocated[i] > allocated[at]) at = i;
      if (reserved[i] > top) top = reserved[i];
    }
    best[x] = at; most[x] = top;
    s = next;
  }
  return { best, most };
}
// The stack is written pixel by pixel: that takes as long for a hundred thousand events as for ten.
let board = null;
function stack(width, height, best, most, y, ratio) {
  if (!board || board.canvas.width !== width || board.canvas.height !== height) {
    const canvas = document.createElement('canvas');
    canvas.width = width; canvas.height = height;
    const c = canvas.getContext('2d', { willReadFrequently: true }), image = c.createImageData(width, height);
    board = { canvas, c, image, pixels: new Uint32Array(image.data.buffer) };
  }
  const { pixels } = board, order = ORDER.filter((k) => !view.hidden.has(k)), all = !view.hidden.size, period = Math.round(8 * ratio);
  pixels.fill(0);
  const column = (x, from, to, color, hatched) => { // rows from..to, from above
    for (let row = Math.max(0, from), at = row * width + x; row < Math.min(height, to); row++, at += width) {
      pixels[at] = hatched && (x + row) % period < ratio ? look.hatchPixel : color;
    }
  };
  const line = (x, before, now, color, thick) => column(x, Math.min(before, now) - (thick >> 1), Math.max(before, now) - (thick >> 1) + thick, color, false);
  let lastAllocated = -1, lastReserved = -1;
  for (let x = 0; x < width; x++) {
    let total = 0, below = height;
    for (const k of order) {
      total = k === CACHED && all ? most[x] : total + sums[k][best[x]];
      const above = Math.round(y(total));
      if (above < below) column(x, above, below, look.pixels[k], k === CACHED);
      below = Math.min(below, above);
    }
    if (!all) continue;
    const a = Math.round(y(allocated[best[x]])), r = Math.round(y(most[x]));
    line(x, lastAllocated < 0 ? a : lastAllocated, a, look.inkPixel, Math.round(ratio));
    line(x, lastReserved < 0 ? r : lastReserved, r, look.dimPixel, Math.round(1.6 * ratio));
    [lastAllocated, lastReserved] = [a, r];
  }
  board.c.putImageData(board.image, 0, 0);
  return board.canvas;
}
function area(c, left, tops, floor) {
  for (let x = 0; x < tops.length; x++) c.fillRect(left + x, tops[x], 1, floor - tops[x]);
}
function tick(most) {
  const rough = most / 5, base = Math.pow(1024, Math.floor(Math.log(Math.max(rough, 1)) / Math.log(1024)));
  return base * [1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128, 200, 256, 500, 512, 1024].find((step) => step * base >= rough);
}
let plot = { left: 0, width: 1, x: () => 0 };
function drawTimeline() {
  const { c, w, h, ratio } = fit($('timeline'));
  const left = Math.round(LEFT * ratio), right = Math.round(10 * ratio), top = TOP * ratio, base = h - BOTTOM * ratio;
  const width = w - left - right, { best, most } = columns(width, view.lo, view.hi);
  let high = 1;
  for (let x = 0; x < width; x++) if (most[x] > high) high = most[x];
  const near = data.limit !== null && data.limit < high * 1.25;
  high = near ? Math.max(high * 1.04, data.limit * 1.04) : high * 1.06;
  const y = (value) => base - ((base - top) * value) / high;
  const px = (s) => left + ((positionOf(s) - view.lo) / (view.hi - view.lo)) * width;
  plot = { left: left / ratio, width: width / ratio, x: px, ratio };

  c.font = `${11.5 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
  c.textBaseline = 'middle';
  c.lineWidth = ratio;
  const step = tick(high);
  c.textAlign = 'right';
  for (let value = 0; value <= high; value += step) {
    c.strokeStyle = value ? look.faint : look.line;
    c.beginPath(); c.moveTo(left, Math.round(y(value)) + 0.5); c.lineTo(left + width, Math.round(y(value)) + 0.5); c.stroke();
    c.fillStyle = look.dim; c.fillText(value ? bytes(value) : '0', left - 9 * ratio, y(value));
  }
  c.textAlign = 'center';
  for (let i = 0; i <= 6; i++) {
    const at = view.lo + ((view.hi - view.lo) * i) / 6;
    const x = Math.min(left + width - 22 * ratio, Math.max(left + 6 * ratio, left + (width * i) / 6));
    c.fillText(view.byTime ? duration(at) : count(Math.min(n, Math.round(at))), x, base + 14 * ratio);
  }

  c.drawImage(stack(width, Math.round(base), best, most, y, ratio), left, 0);
  if (near) {
    c.setLineDash([6 * ratio, 4 * ratio]); c.strokeStyle = look.oom; c.lineWidth = ratio;
    c.beginPath(); c.moveTo(left, y(data.limit)); c.lineTo(left + width, y(data.limit)); c.stroke(); c.setLineDash([]);
    c.fillStyle = look.oom; c.textAlign = 'right'; c.fillText('limit ' + bytes(data.limit), left + width - 6 * ratio, y(data.limit) + 9 * ratio);
  }

  for (const s of oomStates) {
    const x = px(s);
    if (x < left || x > left + width) continue;
    c.strokeStyle = look.oom; c.lineWidth = ratio;
    c.beginPath(); c.moveTo(x, top); c.lineTo(x, base); c.stroke();
    c.fillStyle = look.oom;
    c.beginPath(); c.moveTo(x - 5 * ratio, 3 * ratio); c.lineTo(x + 5 * ratio, 3 * ratio); c.lineTo(x, 12 * ratio); c.fill();
  }
  if (view.block >= 0) {
    const from = Math.max(left, px(blocks.begin[view.block])), to = Math.min(left + width, px(blockEnd[view.block]));
    c.fillStyle = colorOf(view.block); c.fillRect(from, base + 2 * ratio, Math.max(3 * ratio, to - from), 4 * ratio);
  }
  const x = px(view.at);
  if (x >= left && x <= left + width) {
    c.strokeStyle = look.accent; c.lineWidth = 1.5 * ratio;
    c.beginPath(); c.moveTo(x, top - 4 * ratio); c.lineTo(x, base); c.stroke();
    c.fillStyle = look.accent; c.beginPath(); c.arc(x, base, 4 * ratio, 0, 7); c.fill();
  }
}
const colorOf = (block) => look.layers[blocks.category[block] === 6 ? RETIRING : blocks.category[block]];

let strip = null; // the whole history, drawn once
function drawOverview() {
  const canvas = $('overview'), { c, w, h, ratio } = fit(canvas), left = Math.round(LEFT * ratio), width = w - left - Math.round(10 * ratio);
  const key = [w, h, view.byTime, look.ink].join();
  if (!strip || strip.key !== key) {
    const { best, most } = columns(width, 0, whole()), high = Math.max(1, reserved[peak.reserved]), y = (value) => h - (h - 2) * (value / high);
    const tile = document.createElement('canvas'), t = tile.getContext('2d');
    tile.width = w; tile.height = h;
    t.fillStyle = look.free; area(t, left, Float32Array.from(most, y), h);
    t.fillStyle = look.dim; t.globalAlpha = 0.55; area(t, left, Float32Array.from(best, (s) => y(allocated[s])), h);
    strip = { key, tile };
  }
  c.drawImage(strip.tile, 0, 0);
  const x = (at) => left + (at / whole()) * width;
  c.fillStyle = look.panel; c.globalAlpha = 0.72;
  c.fillRect(left, 0, x(view.lo) - left, h); c.fillRect(x(view.hi), 0, left + width - x(view.hi), h);
  c.globalAlpha = 1; c.strokeStyle = look.accent; c.lineWidth = ratio;
  c.strokeRect(x(view.lo) + 0.5, 0.5, Math.max(2, x(view.hi) - x(view.lo) - 1), h - 1);
  c.fillStyle = look.oom;
  for (const s of oomStates) c.fillRect(x(positionOf(s)) - ratio / 2, 0, ratio, h);
}

// --- segments and blocks at the chosen moment ------------------------------------------------------------------------------
let shown = []; // { x, y, w, h, block, segment } in CSS pixels
function drawSegments() {
  const s = view.at, live = [];
  for (let i = 0; i < segments.begin.length; i++) if (segments.begin[i] <= s && s < segmentEnd[i]) live.push(i);
  const canvas = $('segments'), width = Math.max(50, canvas.clientWidth), H = 24, GAP = 7, BETWEEN = 6;
  const sum = live.reduce((all, i) => all + segments.size[i], 0), largest = live.reduce((most, i) => Math.max(most, segments.size[i]), 1);
  const scale = width / Math.max(largest, sum / 22);
  const at = new Map();
  let x = 0, y = 2;
  for (const i of live) {
    const w = Math.min(width, Math.max(4, segments.size[i] * scale));
    if (x > 0 && x + w > width + 0.5) { x = 0; y += H + GAP; }
    at.set(i, { x, y, w });
    x += w + BETWEEN;
  }
  const { c, ratio } = fit(canvas, y + H + 4);
  c.scale(ratio, ratio);
  const free = c.createPattern(look.hatch, 'repeat');
  shown = [];
  for (const i of live) {
    const r = at.get(i);
    c.fillStyle = free; c.fillRect(r.x, r.y, r.w, H);
    shown.push({ ...r, h: H, block: -1, segment: i });
  }
  let lent = 0;
  for (let i = 0; i < blocks.begin.length; i++) {
    if (blocks.begin[i] > s) break; // in the order they began
    if (s >= blockEnd[i]) continue;
    let lo = 0, hi = live.length - 1; // the segment that holds the address
    while (lo < hi) { const mid = (lo + hi + 1) >> 1; if (segments.address[live[mid]] <= blocks.address[i]) lo = mid; else hi = mid - 1; }
    const segment = live[lo], r = at.get(segment);
    if (!r || blocks.address[i] >= segments.address[segment] + segments.size[segment]) continue;
    const per = r.w / segments.size[segment], bx = r.x + (blocks.address[i] - segments.address[segment]) * per, bw = blocks.size[i] * per;
    c.globalAlpha = view.site >= 0 && blocks.site[i] !== view.site ? 0.22 : 1;
    c.fillStyle = colorOf(i);
    c.fillRect(bx, r.y, Math.max(0.6, bw - (bw > 3 ? 1 : 0)), H);
    if (bw > 54) {
      c.fillStyle = blocks.category[i] === 6 ? look.ink : '#fff'; c.font = '10.5px system-ui, "DejaVu Sans", sans-serif'; c.textBaseline = 'middle'; c.textAlign = 'left';
      c.save(); c.beginPath(); c.rect(bx, r.y, bw - 4, H); c.clip(); c.fillText(blocks.category[i] === 6 ? 'retiring' : sites[blocks.site[i]][0], bx + 5, r.y + H / 2 + 0.5); c.restore();
    }
    if (i === view.block) { c.strokeStyle = look.ink; c.lineWidth = 2; c.strokeRect(bx + 1, r.y + 1, Math.max(2, bw - 3), H - 2); }
    lent++;
    shown.push({ x: bx, y: r.y, w: Math.max(bw, 1), h: H, block: i, segment });
  }
  c.globalAlpha = 1;
  for (const i of live) { const r = at.get(i); c.strokeStyle = look['free-line']; c.lineWidth = 1; c.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, H - 1); }
  $('segment-note').textContent = `${count(live.length)} segments, ${count(lent)} blocks; a full row is ${bytes(width / scale)}`;
}

function drawHolders() {
  const s = view.at, held = new Map();
  for (let i = 0; i < blocks.begin.length && blocks.begin[i] <= s; i++) {
    if (s >= blockEnd[i] || blocks.category[i] === 6) continue;
    const entry = held.get(blocks.site[i]) || { site: blocks.site[i], bytes: 0, count: 0, parts: new Map() };
    entry.bytes += blocks.size[i]; entry.count++;
    entry.parts.set(blocks.category[i], (entry.parts.get(blocks.category[i]) || 0) + blocks.size[i]);
    held.set(blocks.site[i], entry);
  }
  const all = [...held.values()].sort((a, b) => b.bytes - a.bytes), most = all.length ? all[0].bytes : 1;
  const rows = all.slice(0, 10).map((e) => {
    const parts = [...e.parts].map(([k, size]) => `<i style="width:${(100 * size) / most}%;background:var(--c${k})"></i>`).join('');
    return `<tr class="row" data-site="${e.site}"><td>${escape(sites[e.site][0])}<div class="site">${place(e.site)}</div><div class="bar">${parts}</div></td>` +
      `<td class="n"><b>${bytes(e.bytes)}</b><div class="site">${count(e.count)} ${e.count === 1 ? 'block' : 'blocks'}</div></td></tr>`;
  });
  const rest = all.slice(10).reduce((sum, e) => sum + e.bytes, 0);
  if (rest) rows.push(row(`${count(all.length - 10)} more`, bytes(rest)));
  $('holders').innerHTML = all.length ? `<table>${rows.join('')}</table>` : '<p class="hint">nothing is allocated</p>';
}
function eventRow(i, now) {
  const action = data.actions[events.action[i]], bad = events.action[i] === OOM ? ' class="oom"' : '';
  return `<tr class="row${now ? ' now' : ''}" data-state="${i + 1}"><td class="n site">${count(i + 1)}</td><td${bad}>${action.replace('_', '&nbsp;')}</td>` +
    `<td class="n">${bytes(events.size[i])}</td><td>${escape(sites[events.site[i]][0])}<div class="site">${shortPlace(events.site[i])}</div></td></tr>`;
}
function drawAround() {
  const from = Math.max(0, Math.min(n - 9, view.at - 5)), rows = [];
  for (let i = from; i < Math.min(n, from + 9); i++) rows.push(eventRow(i, i === view.at - 1));
  $('around').innerHTML = n ? `<table>${rows.join('')}</table>` : '<p class="hint">no history was recorded: this is the state at the snapshot</p>';
}
function drawLegend() {
  const s = view.at;
  $('legend').innerHTML = ORDER.map((k) => `<button data-layer="${k}" class="${view.hidden.has(k) ? 'off' : ''}" title="show or hide">` +
    `<i ${k === CACHED ? 'class="hatch"' : `style="background:var(--c${k})"`}></i>${NAMES[k]} <b>${bytes(sums[k][s])}</b></button>`).join('') +
    `<button data-layer="-1" disabled>reserved <b>${bytes(reserved[s])}</b></button>`;
  for (const at of document.querySelectorAll('.at')) at.textContent = n ? `after event ${count(s)}, ${duration(time[s])}` : '';
}
function drawOnce() {
  const ratio = allocated[peak.allocated] ? reserved[peak.reserved] / allocated[peak.allocated] : 1;
  let bought = 0, lent = 0;
  for (const action of events.action) { bought += action === SEGMENT_ALLOC; lent += action === ALLOC; }
  const cards = [[bytes(allocated[peak.allocated]), 'peak allocated'], [bytes(reserved[peak.reserved]), 'peak reserved'],
    [ratio.toFixed(3), 'peak reserved / peak allocated'], [count(bought), 'segments bought'], [count(lent), 'blocks lent'],
    [count(oomStates.length), 'out of memory', oomStates.length ? 'bad' : '']];
  if (data.moved_bytes) cards.push([bytes(data.moved_bytes), 'moved']);
  $('cards').innerHTML = cards.map(([value, name, kind]) => `<div class="card ${kind || ''}"><b>${value}</b><span>${name}</span></div>`).join('');
  document.title = data.title + ' · memory';
  $('title').textContent = data.title;
  const lost = data.overflowed ? `, ${count(data.overflowed)} older ones not kept` : '';
  $('subtitle').textContent = `policy ${data.policy} · ${count(n)} events in ${duration(time[n])}${lost}`;
  $('ooms-panel').hidden = !oomStates.length;
  const ooms = oomStates.slice(0, 50).map((s, i) => `<tr class="row" data-state="${s}"><td class="n site">${count(s)}</td><td class="oom">asked ${bytes(events.size[s - 1])}</td>` +
    `<td>${escape(sites[events.site[s - 1]][0])}<div class="site">${place(events.site[s - 1])}</div></td><td>allocated ${bytes(allocated[s])}, cached ${bytes(events.free[i])}, reserved ${bytes(reserved[s])}</td></tr>`);
  $('ooms').innerHTML = `<table>${ooms.join('')}</table>`;
}

// The timeline follows the hand; the rest changes with the chosen moment only.
function draw(moment) {
  drawTimeline(); drawOverview();
  if (!moment) return;
  drawSegments(); drawHolders(); drawAround(); drawLegend();
  $('by-event').classList.toggle('on', !view.byTime);
  $('by-time').classList.toggle('on', view.byTime);
}
let waiting = 0; // 1: the timeline, 2: everything
function dirty(moment = true) {
  if (!waiting) requestAnimationFrame(() => { const all = waiting === 2; waiting = 0; draw(all); });
  waiting = Math.max(waiting, moment ? 2 : 1);
}
