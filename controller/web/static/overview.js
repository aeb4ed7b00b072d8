// What most readers look at first: how the run does, in tiles and eight curves.
import {fill, h, link, note, section, table, tile} from '/static/dom.js';
import {bytes, count, duration, missing, number, percent, time, toNumber, withInterval} from '/static/format.js';
import {ChartGroup, loadCharts} from '/static/chart.js';
import {align, interval} from '/static/series.js';
import {eventKinds, eventMarks, marksKey} from '/static/marks.js';

const share = (value, digits) => percent(value, digits);
const seconds = (value) => duration(value);
const phases = {gen: 'generate', reward: 'score', old_log_prob: 'old log-probs', ref: 'reference',
  adv: 'advantage', update_actor: 'train', update_weights: 'sync', save_checkpoint: 'save',
  testing: 'validate', values: 'values', update_critic: 'train the critic'};

// Each chart: its series by name, in the order of its lines.
function charts(timings) {
  return [
    {title: 'Reward', hint: 'Bands are 95 % intervals of the mean.', lines: [
      {name: 'training', of: 'critic/rewards/mean', half: 'critic/rewards/ci95'},
      {name: 'held out', evaluation: true, sparse: true}]},
    {title: 'Loss', lines: [{name: 'loss', of: 'actor/loss'}, {name: 'policy', of: 'actor/pg_loss'},
      {name: 'KL to the reference', of: 'actor/kl_loss'}]},
    {title: 'Entropy', unit: 'nats', lines: [{name: 'entropy', of: 'actor/entropy', colour: 'green', dash: 0}]},
    {title: 'KL', unit: 'nats, and clipped share', lines: [{name: 'policy KL', of: 'actor/ppo_kl'},
      {name: 'clipped (right)', of: 'actor/pg_clipfrac', axis: 'y2', format: share}]},
    {title: 'Response length', unit: 'tokens', fromZero: true,
      hint: 'Percentiles of the samples that are trained on.', lines: [
      {name: 'p50', of: 'response_length/p50'},
      {name: 'p99', of: 'response_length/p99'},
      {name: 'cut (right)', of: 'response_length/clip_ratio', axis: 'y2', format: share}]},
    {title: 'Groups', stacked: true, hint: 'Only groups with different rewards teach.', lines: [
      {name: 'mixed', of: 'critic/groups/mixed', colour: 'blue'},
      {name: 'all right', of: 'critic/groups/all_right', colour: 'green'},
      {name: 'all wrong', of: 'critic/groups/all_wrong', colour: 'vermillion'},
      {name: 'all equal', of: 'critic/groups/all_equal', colour: 'grey'}],
    missing: 'An older build recorded this run; it did not count groups.'},
    {title: 'Throughput', unit: 'tok/s', fromZero: true, lines: [
      {name: 'generation', of: 'perf/generation_tokens_per_second'},
      {name: 'training', of: 'perf/training_tokens_per_second'}]},
    {title: 'Seconds of a step', stacked: true, lines: [...timings.map((name) =>
      ({name: phases[name.slice(9)] ?? name.slice(9).replaceAll('_', ' '), of: name, format: seconds})),
    {name: 'other', rest: 'timing_s/step', parts: timings, colour: 'grey', format: seconds}]},
  ];
}

// What no phase has of a step's seconds.
function rest(of, line) {
  const whole = of.get(line.rest);
  if (!whole) return undefined;
  const mid = whole.mid.map((value, i) => value === null ? null : Math.max(0, value -
    line.parts.reduce((sum, name) => sum + (of.get(name)?.mid[i] || 0), 0)));
  return {mid, low: mid, high: mid};
}

function workers(run) {
  return table({caption: 'Workers', key: (row) => `${row.worker?.role} ${row.worker?.rank}`, navigable: false,
    empty: 'No workers are known: the controller does not run.', columns: [
      {title: 'Worker', cell: (row) => `${row.worker.role.replace('ROLE_', '').toLowerCase()} ${row.worker.rank}`},
      {title: 'State', cell: (row) => row.state === 'lost' ? h('span', {class: 'bad-text'}, '✕ lost') : row.state},
      {title: 'Phase', cell: (row) => row.phase || missing},
      {title: 'Version', number: true, cell: (row) => count(row.version)},
      {title: 'Memory', number: true, cell: (row) => bytes(row.ledger?.process_bytes)},
      {title: 'Heartbeat', number: true, cell: (row) => `${duration(row.seconds_since_heartbeat)} ago`},
      {title: 'Tokens/s', number: true, cell: (row) => row.generation ? number(row.tokens_per_second, 3) : missing},
      {title: 'Last action', wide: true, cell: (row) => row.last_action || missing},
    ]});
}

export async function show(page) {
  let run = page.run;
  const dygraphs = loadCharts();
  const tiles = h('dl', {class: 'tiles'});
  const alerts = h('div', {class: 'alerts'});
  const grid = h('div', {class: 'charts overview'});
  const crew = workers(run);
  const crewSection = section('Workers', crew.element);
  const events = h('ol', {class: 'events'});
  const range = h('p', {class: 'note range'});
  const dying = h('div');
  const facts = h('dl', {class: 'facts'});
  let group = new ChartGroup();
  let known;  // names of the series that are drawn
  let answers = 0;
  let specs = [];
  let drawn = [];
  let wanted = [];
  let asked = '';
  let newest = null;

  function showFacts() {
    const {status} = run;
    const m = newest?.metrics ?? {};
    fill(tiles,
        tile('Reward', withInterval(m['critic/rewards/mean'], m['critic/rewards/ci95']), 'of the newest step'),
        tile('Held-out reward', run.held_out === null || run.held_out === undefined ? missing
          : withInterval(run.held_out, run.held_out_interval), 'of the newest validation'),
        tile('Entropy', number(m['actor/entropy'], 3), 'nats per token'),
        tile('Learning groups', m['critic/groups/count'] === undefined ? missing
          : `${count(m['critic/groups/mixed'])} of ${count(m['critic/groups/count'])}`, 'whose rewards differ'),
        tile('Step', duration(m['timing_s/step']), `version ${count(status.version)}`),
        tile('Generation', m['perf/generation_tokens_per_second'] === undefined ? missing
          : `${number(m['perf/generation_tokens_per_second'], 3)} tok/s`, 'in the newest step'));
    fill(alerts,
        status.error ? h('p', {class: 'alert bad'}, '✕ ', status.error) : null,
        status.waits_for ? h('p', {class: 'alert warn'}, '▲ The run waits for ', status.waits_for) : null,
        status.note ? h('p', {class: 'alert'}, status.note) : null,
        toNumber(status.last_lost_step) > 0 ? h('p', {class: 'alert warn'},
            `↺ Steps up to ${count(status.last_lost_step)} are lost, as no checkpoint has them; they are made again.`)
          : null);
    fill(facts, [['Model', run.model], ['Algorithm', run.algorithm], ['Started', time(run.started_at)],
      ['Ended', status.ended_at ? time(status.ended_at) : null], ['Start number', toNumber(status.attempt) > 0 ?
        count(status.attempt) : null], ['Runs for', duration(status.uptime_seconds)],
      ['Numerics', run.numerics_class], ['Build', run.build], ['Directory', run.run_dir]]
        .filter(([, value]) => value).map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
    if (['killed', 'failed', 'unknown'].includes(status.state) && dying.childElementCount === 0) {
      import('/static/last_words.js').then(({lastWords}) => dying.replaceChildren(lastWords(status) ?? ''), () => {});
    }
    crewSection.hidden = (status.workers ?? []).length === 0;
    crew.update(status.workers ?? []);
  }

  async function showCurves() {
    if (wanted.length === 0) return;
    const mine = ++answers;
    const [from, to] = group.range ?? [];
    const [{series}, {evaluations}] = await Promise.all([
      page.ofRun('/series', {name: wanted, points: 240, from: from && Math.max(1, Math.floor(from)),
        to: to && Math.ceil(to)}),
      page.ofRun('/evaluations')]);
    if (mine !== answers) return;  // another range was chosen meanwhile
    const held = evaluations.filter((one) => one.metrics['val/reward/mean'] !== undefined &&
      (!from || (one.step >= from && one.step <= to)));
    const pick = (name) => ({name, exact: true, steps: held.map((one) => toNumber(one.step)),
      mean: held.map((one) => toNumber(one.metrics[name]))});
    const trained = align(series);
    const both = align([...series, pick('val/reward/mean'), pick('val/reward/ci95')]);
    specs.forEach((spec, i) => {
      const {x, of} = spec.lines.some((line) => line.evaluation) ? both : trained;
      drawn[i].update(x, spec.lines.map((line) => {
        if (line.evaluation) return interval(of.get('val/reward/mean'), of.get('val/reward/ci95'));
        if (line.rest) return rest(of, line);
        return line.half ? interval(of.get(line.of), of.get(line.half)) : of.get(line.of);
      }));
    });
  }

  async function showEvents() {
    const {events: list} = await page.ofRun('/events', {limit: 200});
    group.setMarks(eventMarks(list));
    const line = (event) => h('li', {class: event.severity}, h('time', {datetime: event.time}, time(event.time)),
        h('span', {class: 'kind'}, eventKinds[event.kind]?.name ?? event.kind), h('span', {class: 'text'}, event.text));
    fill(events, list.length === 0 ? h('li', null, 'No events are recorded.') : list.slice(0, 8).map(line));
  }

  // Charts for what the run has recorded until now: a young run gets more names.
  async function prepare() {
    const {names} = await page.ofRun('/metrics');
    const next = charts(names.filter((name) => name.startsWith('timing_s/') && name !== 'timing_s/step'));
    wanted = [...new Set(next.flatMap((spec) => spec.lines.flatMap((line) => [line.of, line.half, line.rest])))]
        .filter((name) => name && names.includes(name));
    if (wanted.join() === known) return;
    known = wanted.join();
    specs = next;
    group.close();
    group = new ChartGroup({onZoom: zoomed, range: group.range});
    drawn = specs.map((spec) => group.add(spec));
    grid.replaceChildren(...(wanted.length > 0 ? drawn.map((chart) => chart.element) : []));
    showRange();
  }
  function showRange() {
    const to = group.range;
    fill(range, known === '' ? 'No step is finished yet. The curves begin with the first.'
      : !to ? 'Drag in a chart to zoom in.'
      : [`The charts show steps ${count(Math.max(1, Math.floor(to[0])))} to ${count(Math.ceil(to[1]))}. `,
        h('button', {type: 'button', class: 'quiet', onclick: () => group.zoom(null)}, 'Show all steps')]);
  }
  function zoomed() {
    showRange();
    showCurves().catch(() => {});
  }

  async function refresh(fresh) {
    run = fresh ?? run;
    const key = JSON.stringify([run.status.step, run.status.state, run.held_out, run.status.events]);
    if (asked !== key) {
      await prepare();
      const [{steps}] = await Promise.all([page.ofRun('/steps', {limit: 1}), showCurves(), showEvents()]);
      newest = steps[0];
      asked = key;
    }
    showFacts();
  }
  page.root.append(h('h1', {class: 'unseen'}, `Overview of ${run.id}`), alerts, tiles,
      h('div', {class: 'chart-bar'}, range, marksKey()), grid, crewSection,
      dying, section('Newest events', events, note(link(page.address('events'), 'All events'))),
      section('About this run', facts));
  await refresh();
  return {refresh, shown: () => dygraphs.then(() => group.repaint(), (error) => fill(range, error.message)),
    close: () => group.close()};
}
