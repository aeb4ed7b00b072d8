// Events as marks in charts and lists: a sign and a word, not colour alone.
import {h} from '/static/dom.js';
import {toNumber} from '/static/format.js';

export const eventKinds = {
  start: {sign: '▷', name: 'start', tone: 'grey'},
  end: {sign: '□', name: 'end', tone: 'grey'},
  loss: {sign: '✕', name: 'worker lost', tone: 'vermillion'},
  recovery: {sign: '↺', name: 'recovery', tone: 'orange'},
  undone: {sign: '⌫', name: 'undone steps', tone: 'orange'},
  checkpoint: {sign: '▲', name: 'checkpoint', tone: 'green'},
  message: {sign: '·', name: 'message', tone: 'grey'},
};

// In the order in which they keep their sign where there is room for one.
const drawn = ['loss', 'recovery', 'checkpoint'];

export function eventMarks(events) {
  const marks = events.filter((event) => drawn.includes(event.kind) && toNumber(event.step) > 0)
      .map((event) => ({x: toNumber(event.step), rank: drawn.indexOf(event.kind), ...eventKinds[event.kind]}));
  return marks.sort((a, b) => a.rank - b.rank || a.x - b.x);
}

export const marksKey = () => h('p', {class: 'note marks'}, 'Marks: ', drawn.map((kind) =>
  h('span', null, h('span', {class: `mark ${eventKinds[kind].tone}`, 'aria-hidden': 'true'},
      eventKinds[kind].sign), ` ${eventKinds[kind].name}`)));
