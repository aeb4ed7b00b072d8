// Numbers, times and hostile texts in the form in which a reader sees them.

// The API writes 64-bit integers and numbers that are none as strings.
export function toNumber(value) {
  if (value === null || value === undefined || value === '') return NaN;
  return Number(value);
}

export const missing = '–';

const trimmed = (text) => (text.includes('.') ? text.replace(/\.?0+$/, '') : text);

// Four significant digits; "–" for what is not there, "NaN" for what is no number.
export function number(value, digits = 4) {
  if (value === null || value === undefined || value === '') return missing;
  const x = Number(value);
  if (Number.isNaN(x)) return 'NaN';
  if (!Number.isFinite(x)) return x > 0 ? '∞' : '−∞';
  if (x === 0) return '0';
  const size = Math.abs(x);
  let text;
  if (size >= 1e7 || size < 1e-4) {
    const [head, tail] = x.toExponential(Math.max(0, digits - 2)).split('e');
    text = `${trimmed(head)}e${tail.replace('+', '')}`;
  } else if (size >= 10 ** digits) {
    text = Math.round(x).toLocaleString('en-US').replaceAll(',', '\u202f');
  } else {
    text = trimmed(x.toPrecision(digits));
  }
  return text.replaceAll('-', '−');
}

export function count(value) {
  const x = toNumber(value);
  if (Number.isNaN(x)) return missing;
  return Math.round(x).toLocaleString('en-US').replaceAll(',', '\u202f');
}

export function percent(value, digits = 3) {
  const x = toNumber(value);
  return Number.isNaN(x) ? missing : `${number(x * 100, digits)} %`;
}

// Of a whole: what is below a thousandth is said to be so.
export function shareOf(part, whole) {
  if (!(whole > 0)) return missing;
  return part > 0 && part < whole / 1000 ? '< 0.1 %' : percent(part / whole, part < whole / 10 ? 2 : 3);
}

export function withInterval(mean, half, digits = 3) {
  if (mean === null || mean === undefined) return missing;
  const tail = half === null || half === undefined ? '' : ` ± ${number(half, 2)}`;
  return number(mean, digits) + tail;
}

export function bytes(value) {
  let x = toNumber(value);
  if (Number.isNaN(x)) return missing;
  for (const unit of ['B', 'KiB', 'MiB', 'GiB']) {
    if (Math.abs(x) < 1024) return `${number(x, 3)} ${unit}`;
    x /= 1024;
  }
  return `${number(x, 3)} TiB`;
}

// Seconds as people say them: 12 ms, 3.2 s, 4 m 05 s, 2 h 10 m, 3 d 4 h.
export function duration(value) {
  const x = toNumber(value);
  if (Number.isNaN(x)) return missing;
  if (x === 0) return '0 s';
  if (x < 0.0005) return '< 1 ms';
  if (x < 1) return `${number(x * 1000, 3)} ms`;
  if (x < 60) return `${number(x, 3)} s`;
  const whole = Math.round(x);
  const pad = (part) => String(part).padStart(2, '0');
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${pad(whole % 60)} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor(whole / 60) % 60)} m`;
  return `${Math.floor(whole / 86400)} d ${Math.floor(whole / 3600) % 24} h`;
}

export function time(text) {
  const date = new Date(text);
  if (!text || Number.isNaN(date.getTime())) return missing;
  const pad = (part) => String(part).padStart(2, '0');
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ` +
      `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${Number(n) === 1 ? one : many}`;
}

// Characters that change what a reader sees without being seen: controls, directions, invisible
// ones. Newlines and tabs are layout. Joiners (U+200C, U+200D) stay, as scripts and emoji need them.
const hidden = new RegExp(
    '[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b\\u200e\\u200f' +
    '\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]', 'gu');

const escaped = (character) =>
    `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`;

// For attributes and the title; elements mark the escapes (dom.js).
export function visible(text) {
  return String(text ?? '').replace(hidden, escaped);
}

// The text in pieces: [shown, whether it is an escape].
export function pieces(text) {
  const whole = String(text ?? '');
  const found = [];
  let end = 0;
  for (const match of whole.matchAll(hidden)) {
    if (match.index > end) found.push([whole.slice(end, match.index), false]);
    found.push([escaped(match[0]), true]);
    end = match.index + match[0].length;
  }
  if (end < whole.length) found.push([whole.slice(end), false]);
  return found;
}

// Names of Okabe and Ito's colours (app.css), in the order in which lines and blocks take them.
export const palette = ['blue', 'orange', 'green', 'purple', 'sky', 'vermillion', 'yellow', 'grey'];

const endings = {
  FINISH_REASON_STOP: 'stop',
  FINISH_REASON_LENGTH: 'length',
  FINISH_REASON_ABORTED: 'aborted',
  FINISH_REASON_CUT: 'cut',
};
export const ending = (reason) => endings[reason] ?? 'unknown';

export const groupKinds = {
  mixed: {sign: '◐', name: 'mixed', tone: 'good'},
  all_right: {sign: '●', name: 'all right', tone: 'bad'},
  all_wrong: {sign: '○', name: 'all wrong', tone: 'bad'},
  all_equal: {sign: '=', name: 'all equal', tone: 'bad'},
  evicted: {sign: '✕', name: 'evicted', tone: 'quiet'},
};

export const states = {
  starting: {sign: '◌', tone: 'live'},
  running: {sign: '▶', tone: 'live'},
  restarting: {sign: '↺', tone: 'warn'},
  paused: {sign: '❚❚', tone: 'warn'},
  finished: {sign: '✓', tone: 'good'},
  stopped: {sign: '■', tone: 'quiet'},
  failed: {sign: '✕', tone: 'bad'},
  killed: {sign: '✕', tone: 'bad'},
  unknown: {sign: '?', tone: 'quiet'},
};
export const isLive = (state) => ['running', 'starting', 'paused', 'restarting'].includes(state);
