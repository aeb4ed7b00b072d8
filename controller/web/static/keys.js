// What the keys do. Pages mark their elements: data-row, data-filter, data-previous, data-next.
import {h} from '/static/dom.js';

const list = [
  ['/', 'Go to the filter of the page'],
  ['j  k', 'Next and previous row'],
  ['Enter', 'Open the row'],
  ['[  ]', 'Previous and next step or sample'],
  ['g r', 'Runs'], ['g o', 'Overview'], ['g m', 'Metrics'], ['g t', 'Step'],
  ['g s', 'Samples'], ['g e', 'Events'], ['g c', 'Config'],
  ['Esc', 'Leave a field or this list'],
  ['?', 'This list'],
];

export function help() {
  if (document.querySelector('dialog[open]')) return;
  const dialog = h('dialog', {'aria-labelledby': 'help-title'},
      h('h2', {id: 'help-title'}, 'Keyboard shortcuts'),
      h('dl', {class: 'keys'}, list.map(([key, what]) =>
        [h('dt', null, h('kbd', null, key)), h('dd', null, what)])),
      h('p', {class: 'note'}, 'In a chart, drag to zoom in and click twice to see all again; the ' +
        'arrow keys move the cursor, and Esc shows all. Each chart has a table of its numbers below it.'),
      h('form', {method: 'dialog'}, h('button', {autofocus: true}, 'Close')));
  dialog.addEventListener('close', () => dialog.remove());
  // The policy of the page forbids forms to be sent, so the button closes by itself.
  dialog.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
}

function move(by) {
  const rows = [...document.querySelectorAll('#main [data-row]')].filter((row) => row.offsetParent);
  if (rows.length === 0) return;
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
  rows[next].focus();
  rows[next].scrollIntoView({block: 'nearest'});
}

const click = (selector) => document.querySelector(`#main ${selector}`)?.click();

let goesTo = 0;  // until when a letter after g names a page

export function pressed(key) {
  if (document.querySelector('dialog[open]')) return;
  if (performance.now() < goesTo) {
    goesTo = 0;
    if (key === 'r') {
      location.hash = '#/';
      return;
    }
    const target = document.querySelector(`#pages a[data-key="${CSS.escape(key)}"]`);
    if (target) {
      target.click();
      return;
    }
  }
  if (key === 'g') goesTo = performance.now() + 1500;
  if (key === '/') document.querySelector('#main [data-filter]')?.focus();
  if (key === 'j') move(1);
  if (key === 'k') move(-1);
  if (key === '[') click('[data-previous]');
  if (key === ']') click('[data-next]');
  if (key === '?') help();
}

document.addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || !event.target.matches?.('[data-row]')) return;
  event.target.querySelector('a')?.click();
});
