#include "controller/step/summary/group_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

#include "controller/algorithm/validation_metrics.h"

namespace tandem {
namespace {

using Group = std::vector<const SampleRecord*>;

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// With n - 1, as in verl's advantages. nullopt: fewer than two values.
std::optional<double> Deviation(const std::vector<double>& values) {
  if (values.size() < 2) return std::nullopt;
  const double mean = Mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::map<int64_t, Group> ByGroup(const std::vector<SampleRecord>& records) {
  std::map<int64_t, Group> groups;
  for (const SampleRecord& record : records) groups[record.group].push_back(&record);
  return groups;
}

bool HasLessReward(const SampleRecord* a, const SampleRecord* b) { return a->reward < b->reward; }

// The first of equal ones.
struct Extremes {
  const SampleRecord* best = nullptr;
  const SampleRecord* worst = nullptr;
};

Extremes ExtremesOf(const Group& group) {
  return {.best = *std::max_element(group.begin(), group.end(), HasLessReward),
          .worst = *std::min_element(group.begin(), group.end(), HasLessReward)};
}

double Correctness(const SampleRecord& sample) {
  const auto found = sample.reward_terms.find("acc");
  return found == sample.reward_terms.end() ? sample.reward : found->second;
}

// The bytes of the lines with which all prompts begin; 0 where there is one prompt only.
size_t CommonLines(const std::vector<SampleRecord>& records) {
  const std::string& first = records.front().prompt;
  size_t common = first.size();
  for (const SampleRecord& record : records) {
    if (record.prompt == first) continue;
    const size_t most = std::min(common, record.prompt.size());
    size_t same = 0;
    while (same < most && record.prompt[same] == first[same]) ++same;
    common = same;
  }
  if (common == 0 || common == first.size()) return 0;
  const size_t line = first.rfind('\n', common - 1);
  return line == std::string::npos ? 0 : line + 1;
}

void AddRewardSpread(const std::vector<SampleMeta>& metas, std::map<std::string, double>& metrics) {
  std::vector<double> rewards, means;
  std::map<int64_t, std::pair<double, double>> groups;  // sum of rewards, and their number
  for (const SampleMeta& meta : metas) {
    rewards.push_back(meta.outcome.reward);
    groups[meta.group].first += meta.outcome.reward;
    ++groups[meta.group].second;
  }
  for (const auto& [group, sum] : groups) means.push_back(sum.first / sum.second);
  if (const auto deviation = Deviation(rewards)) metrics[kRewardStd] = *deviation;
  if (means.size() > 1) metrics[kRewardInterval] = HalfWidthOf95Percent(means);
}

}  // namespace

GroupKind KindOfGroup(const Group& group) {
  const Extremes extremes = ExtremesOf(group);
  if (extremes.best->reward != extremes.worst->reward) return GroupKind::kMixed;
  const auto all = [&group](const auto& holds) {
    return std::all_of(group.begin(), group.end(),
                       [&](const SampleRecord* sample) { return holds(Correctness(*sample)); });
  };
  if (all([](double correct) { return correct >= 1; })) return GroupKind::kAllRight;
  if (all([](double correct) { return correct <= 0; })) return GroupKind::kAllWrong;
  return GroupKind::kAllEqual;
}

GroupRecord RecordOfGroup(int64_t number, const Group& group) {
  std::vector<double> rewards;
  for (const SampleRecord* sample : group) rewards.push_back(sample->reward);
  const GroupKind kind = KindOfGroup(group);
  return {.group = number,
          .samples = std::ssize(group),
          .reward_mean = Mean(rewards),
          // Exactly 0 where all are equal, whatever their mean was rounded to.
          .reward_std = kind == GroupKind::kMixed ? Deviation(rewards).value_or(0) : 0,
          .kind = kind};
}

std::vector<GroupRecord> GroupsOf(const std::vector<SampleRecord>& records) {
  std::vector<GroupRecord> groups;
  for (const auto& [number, group] : ByGroup(records)) {
    groups.push_back(RecordOfGroup(number, group));
  }
  return groups;
}

std::map<std::string, double> GroupMetrics(const std::vector<SampleMeta>& metas,
                                           const std::vector<SampleRecord>& records) {
  std::map<std::string, double> metrics;
  AddRewardSpread(metas, metrics);
  metrics[kTrainedSamples] = static_cast<double>(metas.size());
  const std::map<int64_t, Group> groups = ByGroup(records);
  if (groups.empty()) return metrics;
  std::map<GroupKind, double> kinds;
  for (const auto& [number, group] : groups) ++kinds[KindOfGroup(group)];
  const auto count = static_cast<double>(groups.size());
  metrics[kGroups] = count;
  metrics[kGroupsMixed] = kinds[GroupKind::kMixed];
  metrics[kGroupsRight] = kinds[GroupKind::kAllRight];
  metrics[kGroupsWrong] = kinds[GroupKind::kAllWrong];
  metrics[kGroupsEqual] = kinds[GroupKind::kAllEqual];
  metrics[kZeroStdRatio] = (count - kinds[GroupKind::kMixed]) / count;
  return metrics;
}

namespace {

std::vector<SampleRecord> WholeSamples(const std::vector<SampleRecord>& records) {
  if (records.empty()) return {};
  Group all;
  for (const SampleRecord& record : records) all.push_back(&record);
  Extremes shown = ExtremesOf(all);
  if (shown.best->reward == shown.worst->reward) return {records.front()};
  double widest = 0;
  for (const auto& [number, group] : ByGroup(records)) {
    const Extremes extremes = ExtremesOf(group);
    const double range = extremes.best->reward - extremes.worst->reward;
    if (range <= widest) continue;
    widest = range;
    shown = extremes;
  }
  return {*shown.best, *shown.worst};
}

}  // namespace

std::vector<SampleRecord> ContrastingSamples(const std::vector<SampleRecord>& records) {
  std::vector<SampleRecord> samples = WholeSamples(records);
  if (samples.empty()) return samples;
  const size_t begin = CommonLines(records);
  for (SampleRecord& sample : samples) sample.prompt.erase(0, begin);
  return samples;
}

void AddGenerationLoad(const std::vector<std::optional<GeneratorLoad>>& loads,
                       int64_t version,
                       StepDetails& details) {
  double share = 0;
  int64_t waiting = 0;
  for (const std::optional<GeneratorLoad>& load : loads) {
    if (!load || load->peak_version != version || load->kv_blocks <= 0) return;
    share = std::max(share, static_cast<double>(load->peak_kv_blocks_used) /
                                static_cast<double>(load->kv_blocks));
    waiting = std::max(waiting, load->peak_waiting);
  }
  if (loads.empty()) return;
  details.kv_share = share;
  details.waiting = waiting;
}

}  // namespace tandem
