// One step: what it measured, where its seconds went, its groups, distributions, updates and syncs.
import {details, fill, h, link, note, section, simpleTable, svg, tile} from '/static/dom.js';
import {bytes, count, duration, groupKinds, missing, number, palette, percent, shareOf, time, toNumber,
  withInterval} from '/static/format.js';

export function groupKind(kind) {
  const known = groupKinds[kind];
  if (!known) return missing;
  return h('span', {class: `kind-${known.tone}`}, h('span', {'aria-hidden': 'true'}, known.sign), ` ${known.name}`);
}

function phaseBar(phases) {
  const total = phases.reduce((sum, phase) => sum + phase.seconds, 0);
  const bar = h('div', {class: 'phasebar', role: 'img', 'aria-label': 'Seconds by phase: ' + phases
      .map((phase) => `${phase.phase} ${duration(phase.seconds)}`).join(', ')},
  phases.map((phase, i) => h('span', {title: `${phase.phase} ${duration(phase.seconds)}`,
    style: {flexGrow: String(phase.seconds / (total || 1)), background: `var(--${palette[i % palette.length]})`}})));
  return [bar, simpleTable({caption: 'Phases', columns: [
    {title: 'Phase', cell: ({phase, i}) => [h('span', {class: 'swatch block',
      style: {color: `var(--${palette[i % palette.length]})`}}), phase.phase]},
    {title: 'Time', number: true, cell: ({phase}) => duration(phase.seconds)},
    {title: 'Share', number: true, cell: ({phase}) => shareOf(phase.seconds, total)},
    {title: 'Most memory of a device', number: true, cell: ({phase}) => toNumber(phase.peak_bytes) > 0
      ? bytes(phase.peak_bytes) : missing}]}, phases.map((phase, i) => ({phase, i})))];
}

const histogramNames = {reward: ['Reward', 'samples', ''], length: ['Response length', 'samples', 'tokens'],
  advantage: ['Advantage', 'tokens', ''], log_prob: ['Log-prob of the rollout', 'tokens', 'nats'],
  ratio: ['Ratio of trainer to rollout', 'tokens', '']};

function histogram(one) {
  const [title, what, unit] = histogramNames[one.name] ?? [one.name, 'numbers', ''];
  const counts = one.counts.map(toNumber);
  const all = counts.reduce((sum, n) => sum + n, 0);
  const most = Math.max(1, ...counts);
  const low = toNumber(one.low);
  const width = (toNumber(one.high) - low) / Math.max(1, counts.length);
  const edge = (i) => number(low + i * width, 3);
  const [w, height] = [300, 96];
  const bars = counts.map((n, i) => n === 0 ? null : svg('rect', {x: i * w / counts.length + 0.5,
    width: Math.max(1, w / counts.length - 1), y: height - Math.max(1.5, n / most * height),
    height: Math.max(1.5, n / most * height)}, svg('title', null, `${edge(i)} to ${edge(i + 1)}: ${count(n)} ${what}`)));
  const ends = unit ? ` ${unit}` : '';
  const caption = h('figcaption', null, h('span', {class: 'chart-title'}, title),
      h('span', {class: 'at'}, `${count(all)} ${what}`));
  if (!(width > 0)) {
    return h('figure', {class: 'chart histogram'}, caption, note(`All are ${number(one.low)}${ends}.`));
  }
  return h('figure', {class: 'chart histogram'}, caption, svg('svg', {viewBox: `0 0 ${w} ${height}`,
    preserveAspectRatio: 'none', role: 'img', 'aria-label':
      `${title} of ${count(all)} ${what}: ` +
      `from ${number(one.low, 3)}${ends} to ${number(one.high, 3)}${ends}, ` +
    `the most frequent bin has ${count(most)}`}, bars),
  h('p', {class: 'ends'}, h('span', null, number(one.low, 3) + ends), h('span', null, number(one.high, 3) + ends)),
  details('Table of these numbers', () => simpleTable({caption: `${title}: bins`, columns: [
    {title: 'From', number: true, cell: (i) => edge(i)}, {title: 'To', number: true, cell: (i) => edge(i + 1)},
    {title: what, number: true, cell: (i) => count(counts[i])}]},
  counts.map((_, i) => i).filter((i) => counts[i] > 0))).element);
}

function groupsTable(page, groups, step) {
  if (groups.length === 0) return note('An older build recorded this step, or dropped its groups: none are known.');
  const equal = groups.filter((group) => !['mixed', 'evicted'].includes(group.kind)).length;
  return [note(`${count(groups.length)} groups; the rewards of ${count(equal)} of them are all equal, so that they ` +
    'teach nothing where an algorithm compares the samples of a group.'),
  simpleTable({caption: 'Groups', navigable: true, columns: [
    {title: 'Group', number: true, cell: (group) => link(`${page.address('samples')}?${new URLSearchParams(
        {step, group: group.group})}`, count(group.group))},
    {title: 'Kind', cell: (group) => groupKind(group.kind)},
    {title: 'Samples', number: true, cell: (group) => count(group.samples)},
    {title: 'Mean reward', number: true, cell: (group) => number(group.reward_mean)},
    {title: 'Standard deviation', number: true, cell: (group) => number(group.reward_std)}]}, groups)];
}

function memoryTable(phases) {
  const rows = phases.flatMap((phase) => (phase.workers ?? []).map((worker) => ({phase: phase.phase, worker})));
  if (rows.length === 0) return note('No memory ledgers are kept of this step.');
  return simpleTable({caption: 'Memory by phase and worker', columns: [
    {title: 'Phase', cell: (row) => row.phase},
    {title: 'Worker', cell: ({worker}) => `${worker.role.replace('ROLE_', '').toLowerCase()} ${worker.rank}`},
    {title: 'Peak', number: true, cell: ({worker}) => bytes(worker.ledger.memory_peak_bytes)},
    {title: 'Of which, by tag', wide: true, cell: ({worker}) => (worker.ledger.entries ?? [])
        .filter((entry) => toNumber(entry.peak_bytes) > 0)
        .sort((a, b) => toNumber(b.peak_bytes) - toNumber(a.peak_bytes))
        .map((entry) => `${entry.tag} ${bytes(entry.peak_bytes)}`).join(', ')}]}, rows);
}

function updatesTable(updates) {
  const metric = (name) => ({title: name.replace('actor/', '').replaceAll('_', ' '), number: true,
    cell: (update) => number(update.metrics[name], 4)});
  return simpleTable({caption: 'Updates', columns: [
    {title: 'Update', number: true, cell: (update) => count(toNumber(update.ordinal) + 1)},
    {title: 'Makes version', number: true, cell: (update) => count(update.version)},
    {title: 'Samples', number: true, cell: (update) => count(update.samples)},
    {title: 'Trained tokens', number: true, cell: (update) => count(update.tokens)},
    ...['actor/loss', 'actor/pg_loss', 'actor/entropy', 'actor/ppo_kl', 'actor/pg_clipfrac', 'actor/grad_norm', 'actor/lr']
        .filter((name) => updates.some((update) => update.metrics[name] !== undefined)).map(metric)]}, updates);
}

const syncsTable = (syncs) => simpleTable({caption: 'Weight syncs', columns: [
  {title: 'Version', number: true, cell: (sync) => count(sync.version)},
  {title: 'To rollout', number: true, cell: (sync) => count(sync.rank)},
  {title: 'Bytes', number: true, cell: (sync) => bytes(sync.bytes)},
  {title: 'Time', number: true, cell: (sync) => duration(sync.seconds)},
  {title: 'Arrived', cell: (sync) => time(sync.time)},
  {title: 'Read back', cell: (sync) => sync.checked ? '✓ compared, equal' : 'not compared'},
  {title: 'Digest', cell: (sync) => h('code', null, sync.digest || missing)}]}, syncs);

function allMetrics(metrics) {
  const names = Object.keys(metrics).sort();
  const made = h('div');
  const draw = (text) => fill(made, simpleTable({caption: 'Metrics', empty: 'No metric has this in its name.', columns: [
    {title: 'Metric', wide: true, cell: (name) => name},
    {title: 'Value', number: true, cell: (name) => number(metrics[name], 5)}]},
  names.filter((name) => name.includes(text))));
  draw('');
  return [h('input', {type: 'search', 'data-filter': true, placeholder: 'Filter by name …',
    'aria-label': 'Filter of metrics',
    oninput: (event) => draw(event.target.value)}), made];
}

export async function show(page) {
  let last = toNumber(page.run.status.made_step) || toNumber(page.run.status.step);
  const follows = page.parts[0] === undefined;
  const head = h('div', {class: 'title'});
  const body = h('div');
  page.root.append(head, body);
  let drawn = 0;

  function drawHead(step) {
    const to = (n, name, sign) => n >= 1 && n <= last
      ? h('a', {class: 'button', href: page.address('step', n), [`data-${name}`]: true}, sign)
      : h('span', {class: 'button off'}, sign);
    fill(head, h('h1', null, `Step ${count(step)}`), h('span', {class: 'steps'}, to(step - 1, 'previous', '‹ Previous'),
        to(step + 1, 'next', 'Next ›'), step < last ? link(page.address('step'), 'Newest step') : null,
        link(`${page.address('samples')}?step=${step}`, 'Samples of the step')));
  }

  async function draw(step) {
    const {step: record, groups = [], evaluation} = await page.ofRun(`/steps/${step}`);
    const m = record.metrics;
    drawn = step;
    drawHead(step);
    const held = evaluation?.metrics;
    body.replaceChildren(...[
      toNumber(record.undone_by) > 0 ? h('p', {class: 'alert warn'}, '⌫ A recovery has undone this step.') : null,
      note(`Finished ${time(record.finished_at)}; it made weight version ${count(record.version)}.`),
      h('dl', {class: 'tiles five'},
          tile('Reward', withInterval(m['critic/rewards/mean'], m['critic/rewards/ci95'])),
          held ? tile('Held-out reward', withInterval(held['val/reward/mean'], held['val/reward/ci95']),
              `${count(evaluation.prompts)} prompts, ${duration(evaluation.seconds)}`) : null,
          tile('Loss', number(m['actor/loss'])), tile('Entropy', number(m['actor/entropy'], 3), 'nats per token'),
          tile('Policy KL', number(m['actor/ppo_kl'], 3), 'nats'),
          tile('Clipped', percent(m['actor/pg_clipfrac']), 'of the tokens'),
          tile('Gradient norm', number(m['actor/grad_norm'], 3)),
          tile('Response length', number(m['response_length/mean'], 3),
              `tokens; ${percent(m['response_length/clip_ratio'])} cut`),
          tile('Time', duration(m['timing_s/step'])),
          tile('Identical log-probs', m['training/rollout_log_probs_identical'] === undefined ? missing
            : percent(m['training/rollout_log_probs_identical'], 5), 'of rollout and trainer')),
      section('Seconds by phase', record.phases.length > 0 ? phaseBar(record.phases) : note('No phases are recorded.')),
      section('Distributions', (record.histograms ?? []).length > 0
        ? h('div', {class: 'charts small'}, record.histograms.map(histogram))
        : note('An older build recorded this step: it kept no distributions.')),
      section('Groups', groupsTable(page, groups, step)),
      section('Optimizer updates', (record.updates ?? []).length > 0 ? updatesTable(record.updates)
        : note('An older build recorded this step: it kept no single updates.')),
      section('Weight syncs', (record.syncs ?? []).length > 0 ? syncsTable(record.syncs)
        : note('No syncs are recorded since the step before.')),
      details('Memory by phase and worker', () => memoryTable(record.phases)).element,
      details(`All ${count(Object.keys(m).length)} metrics`, () => allMetrics(m)).element,
    ].filter(Boolean));
  }

  const asked = follows ? last : toNumber(page.parts[0]);
  if (!(asked >= 1)) {
    page.root.replaceChildren(h('h1', null, 'Step'), note('No step is finished yet. The first one appears here by itself.'));
    if (!follows || last > 0) return {};
  } else {
    await draw(asked);
  }
  return {refresh: async (run) => {
    last = toNumber(run.status.made_step) || toNumber(run.status.step);
    if (last < 1) return;
    if (!follows) drawHead(drawn);
    else if (last !== drawn) {
      if (!head.isConnected) page.root.replaceChildren(head, body);
      await draw(last);
    }
  }};
}
