// Builds elements. Texts become text nodes and never HTML, and their unseen characters are shown.
import {pieces, states, visible} from '/static/format.js';

export function textNodes(text) {
  const fragment = document.createDocumentFragment();
  for (const [piece, isEscape] of pieces(text)) {
    if (!isEscape) {
      fragment.append(document.createTextNode(piece));
      continue;
    }
    const mark = document.createElement('span');
    mark.className = 'escape';
    mark.textContent = piece;
    fragment.append(mark);
  }
  return fragment;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : textNodes(child));
  }
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) {
      element.addEventListener(name.slice(2), value);
    } else if (name === 'style') {
      Object.assign(element.style, value);
    } else {
      element.setAttribute(name, value === true ? '' : visible(value));
    }
  }
}

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  return append(element, children);
}

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setAttributes(element, attributes);
  return append(element, children);
}

// Texts and elements in place of what the element has, unless it shows the same already.
export function fill(element, ...children) {
  const next = append(document.createElement('div'), children);
  const same = next.childNodes.length === element.childNodes.length &&
      [...next.childNodes].every((node, i) => node.isEqualNode(element.childNodes[i]));
  if (!same) element.replaceChildren(...next.childNodes);
  return element;
}

export const link = (href, ...children) => h('a', {href}, ...children);

export function stateBadge(state) {
  const known = states[state] ?? states.unknown;
  return h('span', {class: `badge ${known.tone}`},
      h('span', {'aria-hidden': 'true'}, known.sign), ' ', state || 'unknown');
}

export function progress(step, total, label) {
  const share = total > 0 ? Math.min(1, step / total) : 0;
  return h('span', {class: 'progress', role: 'progressbar', 'aria-label': label,
    'aria-valuemin': '0', 'aria-valuemax': String(total), 'aria-valuenow': String(step)},
  h('span', {style: {width: `${share * 100}%`}}));
}

export function tile(name, value, hint) {
  return h('div', {class: 'tile'}, h('dt', null, name), h('dd', null, value),
      hint ? h('dd', {class: 'hint'}, hint) : null);
}

export function section(title, ...children) {
  return h('section', null, h('h2', null, title), ...children);
}

export const note = (...children) => h('p', {class: 'note'}, ...children);

// A table whose rows are kept while they say the same, so that focus, selection and scroll stay.
// Columns: {title, cell: (row) => text or element, number: aligned right, wide: takes the room}.
// On a narrow screen the rows of tables with a wide column become blocks (app.css); roles keep them
// tables for those who hear them.
export function table({caption, columns, key, empty, rowClass, navigable = true}) {
  const stacks = columns.some((column) => column.wide);
  const role = (name) => (stacks ? name : null);
  const body = h('tbody', {role: role('rowgroup')});
  const head = h('tr', {role: role('row')}, columns.map((column) =>
    h('th', {scope: 'col', role: role('columnheader'), class: column.number ? 'number' : column.wide ? 'wide' : null,
      title: column.hint}, column.title)));
  const nothing = h('p', {class: 'note', hidden: true}, empty ?? 'There is nothing here.');
  const scroller = h('div', {class: 'scroller', tabindex: '0', role: 'region',
    'aria-label': caption}, h('table', {class: stacks ? 'stacks' : null, role: role('table')},
      h('caption', {class: 'unseen'}, caption), h('thead', {role: role('rowgroup')}, head), body));
  const kept = new Map();
  const build = (row) => h('tr', {'data-row': navigable ? '' : null, tabindex: navigable ? '-1' : null,
    class: rowClass?.(row), role: role('row')}, columns.map((column) => h('td', {role: role('cell'),
    class: column.number ? 'number' : column.wide ? 'wide' : null, 'data-title': column.title}, column.cell(row))));
  const update = (rows) => {
    const used = new Set();
    const next = rows.map((row, i) => {
      const name = String(key ? key(row) : i);
      used.add(name);
      const old = kept.get(name);
      const fresh = build(row);
      if (old && old.isEqualNode(fresh)) return old;
      if (old && old.contains(document.activeElement)) {
        const reachable = (tr) => [tr, ...tr.querySelectorAll('a,button')];
        const place = reachable(old).indexOf(document.activeElement);
        queueMicrotask(() => reachable(fresh)[place]?.focus({preventScroll: true}));
      }
      kept.set(name, fresh);
      return fresh;
    });
    for (const name of kept.keys()) if (!used.has(name)) kept.delete(name);
    const unchanged = next.length === body.children.length &&
        next.every((row, i) => row === body.children[i]);
    const focused = [...body.children].findIndex((row) => row.contains(document.activeElement));
    if (!unchanged) body.replaceChildren(...next);
    // The focused row is gone, as the table shows another step: its place stays.
    if (focused >= 0 && next.length > 0 && !body.contains(document.activeElement)) {
      queueMicrotask(() => {
        if (!body.contains(document.activeElement)) next[Math.min(focused, next.length - 1)].focus({preventScroll: true});
      });
    }
    nothing.hidden = rows.length > 0;
    scroller.hidden = rows.length === 0;
  };
  return {element: h('div', {class: 'table'}, scroller, nothing), update};
}

// The same as a plain table at once.
export function simpleTable(options, rows) {
  const made = table({navigable: false, ...options});
  made.update(rows);
  return made.element;
}

// Contents that are made when a reader opens them.
export function details(summary, make, {open = false} = {}) {
  const inside = h('div');
  const element = h('details', {open}, h('summary', null, summary), inside);
  const refresh = () => {
    if (element.open) fill(inside, make());
  };
  element.addEventListener('toggle', refresh);
  if (open) refresh();
  return {element, refresh};
}

export function debounce(milliseconds, act) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...values), milliseconds);
  };
}
