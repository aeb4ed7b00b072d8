// The frame around all pages: opens the session, reads the address, shows the run's header, and
// asks again while a run is live.
import {fill, h, link, progress, stateBadge} from '/static/dom.js';
import {count, duration, isLive, toNumber, visible} from '/static/format.js';

const pages = {
  '': {file: 'overview.js', name: 'Overview', key: 'o'},
  metrics: {file: 'metrics.js', name: 'Metrics', key: 'm'},
  step: {file: 'step.js', name: 'Step', key: 't'},
  samples: {file: 'samples.js', name: 'Samples', key: 's'},
  events: {file: 'events.js', name: 'Events', key: 'e'},
  config: {file: 'config.js', name: 'Config', key: 'c'},
};
const askAgain = 2000;     // milliseconds, while a run goes on
const askSeldom = 10000;   // where none does: one may begin, or go on
const main = document.getElementById('main');
const banner = document.getElementById('banner');

class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

async function answer(response) {
  if (response.ok) return response.status === 204 ? null : response.json();
  let code = 'UNKNOWN';
  let message = `The server answered with status ${response.status}.`;
  try {
    ({code, message} = await response.json());
  } catch {
    // The status has to do.
  }
  throw new Refused(response.status, code, message);
}

// Asks for /api/v1 and path with parameters; a list repeats its name.
export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === null || value === '') continue;
    for (const one of [value].flat()) query.append(name, one);
  }
  const tail = query.size > 0 ? `?${query}` : '';
  return answer(await fetch(`/api/v1${path}${tail}`, {signal, credentials: 'same-origin'}));
}

// The token is in the fragment of the printed address; it becomes a cookie and leaves the address.
async function openSession() {
  const token = /^#t=(.+)$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, '', '/#/');
  await answer(await fetch('/api/v1/session', {
    method: 'POST',
    headers: {Authorization: `Bearer ${token}`, 'Content-Type': 'application/json'},
    body: '{}',
    credentials: 'same-origin',
  }));
}

export const runAddress = (run, ...parts) =>
  `#/${['runs', run, ...parts].map((part) => encodeURIComponent(part)).join('/')}`;

function readAddress() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const run = parts[0] === 'runs' ? parts[1] : undefined;
  return {run, name: parts[2] ?? '', parts: parts.slice(3), query: new URLSearchParams(query)};
}

let shown = null;  // {address, view, run, stop}
let timer = 0;
const places = new Map();  // address to how far it was scrolled

function fileOf(address) {
  if (!address.run) return 'runs.js';
  if (address.name === 'samples' && address.parts.length >= 2) return 'sample.js';
  return pages[address.name]?.file;
}

function explain(error) {
  if (error.status === 401) {
    return [h('h1', null, 'This page needs its token'),
      h('p', null, 'Open the whole address that the program printed when it started. ' +
        'It ends in “#t=” and a token; the token changes with every start.')];
  }
  if (error.status === 404) {
    return [h('h1', null, 'There is no such thing'), h('p', null, error.message),
      h('p', null, link('#/', 'All runs'))];
  }
  return [h('h1', null, 'This page could not be shown'), h('p', null, error.message),
    h('p', null, link('#/', 'All runs'))];
}

// Seconds of the newest steps, by their ends.
const pace = {key: '', seconds: NaN};
async function measurePace(run) {
  const key = `${run.id} ${run.status.step}`;
  if (pace.key === key || !isLive(run.status.state)) return;
  pace.key = key;
  const {steps} = await get(`/runs/${run.id}/steps`, {limit: 11});
  const ends = steps.map((step) => Date.parse(step.finished_at) / 1000);
  pace.seconds = ends.length > 1 ? (ends[0] - ends.at(-1)) / (ends.length - 1)
    : toNumber(steps[0]?.metrics['timing_s/step']);
}

function showHeader(address, run) {
  const head = document.getElementById('run-head');
  const nav = document.getElementById('pages');
  nav.hidden = !run;
  if (!run) {
    fill(head);
    document.title = 'Runs · Tandem';
    return;
  }
  const status = run.status;
  const [step, total] = [toNumber(status.step), toNumber(status.total_steps)];
  const left = (total - step) * pace.seconds;
  const says = [];
  if (isLive(status.state) && status.phase) says.push(status.phase);
  if (status.state === 'running' && left > 0) says.push(`about ${duration(left)} left`);
  if (toNumber(status.restarts) > 0) says.push(`${count(status.restarts)} restarts`);
  fill(head,
      h('a', {class: 'run-name', href: runAddress(run.id)}, run.id), stateBadge(status.state),
      h('span', {class: 'stepbar'}, progress(step, total, 'Finished steps'),
          h('span', {class: 'numbers'}, `step ${count(step)} of ${count(total)}`)),
      h('span', {class: 'says'}, says.join(' · ')));
  const current = pages[address.name] ? address.name : '';
  fill(nav, Object.entries(pages).map(([name, page]) =>
    h('a', {href: name ? runAddress(run.id, name) : runAddress(run.id), 'data-key': page.key,
      'aria-current': name === current ? 'page' : null}, page.name)));
  document.title = visible(`${pages[current].name} · ${run.id} · Tandem`);
}

function say(text) {
  banner.hidden = !text;
  fill(banner, text);
}

async function refresh() {
  clearTimeout(timer);
  const now = shown;
  if (!now?.view || document.hidden) return;
  let live = true;
  try {
    if (now.address.run) {
      const run = await get(`/runs/${encodeURIComponent(now.address.run)}`, {}, now.stop.signal);
      await measurePace(run);
      if (shown !== now) return;
      now.run = run;
      showHeader(now.address, run);
      live = isLive(run.status.state);
    }
    const goesOn = await now.view.refresh?.(now.run);
    if (!now.address.run) live = goesOn;
    if (shown === now) say('');
  } catch (error) {
    if (error.name === 'AbortError' || shown !== now) return;
    if (error.status === 401) {
      main.replaceChildren(...explain(error));
      return;
    }
    say(error.status ? error.message :
      'The server does not answer. What is shown is the last that it said; it is asked again. A controller serves ' +
      'its run until it ends: afterwards tandemctl ui shows it.');
  }
  if (shown !== now) return;
  clearTimeout(timer);  // of another answer that came meanwhile
  timer = setTimeout(refresh, live ? askAgain : askSeldom);
}

async function show() {
  if (location.hash.startsWith('#t=')) await openSession();
  const address = readAddress();
  clearTimeout(timer);
  shown?.stop.abort();
  shown?.view?.close?.();
  const now = {address, stop: new AbortController(), view: null, run: null};
  shown = now;
  main.setAttribute('aria-busy', 'true');
  try {
    const file = fileOf(address);
    if (!file) throw new Refused(404, 'NOT_FOUND', 'The dashboard has no page of this name.');
    const module = import(`/static/${file}`);
    if (address.run) {
      now.run = await get(`/runs/${encodeURIComponent(address.run)}`, {}, now.stop.signal);
      measurePace(now.run).then(() => shown === now && showHeader(address, now.run), () => {});
    }
    if (shown !== now) return;
    showHeader(address, now.run);
    const root = h('div', {class: 'page'});
    const view = await (await module).show({
      root, run: now.run, parts: address.parts, query: address.query,
      get: (path, parameters) => get(path, parameters, now.stop.signal),
      ofRun: (path, parameters) =>
        get(`/runs/${encodeURIComponent(address.run)}${path}`, parameters, now.stop.signal),
      address: (...parts) => runAddress(address.run, ...parts),
      // Keeps what a reader has chosen in the address, without a new page.
      remember: (query) => history.replaceState(history.state, '',
          location.hash.split('?')[0] + (query.size > 0 ? `?${query}` : '')),
    });
    if (shown !== now) {
      view?.close?.();
      return;
    }
    now.view = view ?? {};
    main.replaceChildren(root);
    main.dataset.shown = location.hash;
    // What had the focus is gone: those who hear the page begin at its top.
    if (document.activeElement === document.body) main.focus({preventScroll: true});
    now.view.shown?.();
    say('');
    scrollTo(0, places.get(location.hash) ?? 0);
    const live = address.run ? isLive(now.run.status.state) : now.view.live;
    timer = setTimeout(refresh, live ? askAgain : askSeldom);
  } catch (error) {
    if (error.name === 'AbortError' || shown !== now) return;
    if (!now.run) showHeader(address, null);
    main.replaceChildren(h('div', {class: 'page'}, explain(error)));
    main.dataset.shown = location.hash;
  } finally {
    if (shown === now) main.removeAttribute('aria-busy');
  }
}

addEventListener('hashchange', show);
addEventListener('scroll', () => places.set(location.hash, scrollY), {passive: true});
document.addEventListener('click', (event) => {
  const target = event.target.closest?.('a[href^="#/"]');
  if (target) places.delete(target.getAttribute('href'));
});
document.addEventListener('visibilitychange', refresh);
document.getElementById('skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});

async function keys() {
  return import('/static/keys.js');
}
document.getElementById('help').addEventListener('click', async () => (await keys()).help());
document.addEventListener('keydown', async (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.closest?.('input:not([type=checkbox], [type=range]), textarea, select')) {
    if (event.key === 'Escape') event.target.blur();
    return;
  }
  if ('/jk[]?gromstec'.includes(event.key)) {
    if (event.key === '/') event.preventDefault();
    (await keys()).pressed(event.key);
  }
});

openSession().then(show, (error) => main.replaceChildren(h('div', {class: 'page'}, explain(error))));
