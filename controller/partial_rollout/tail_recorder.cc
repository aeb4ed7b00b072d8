#include "controller/partial_rollout/tail_recorder.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "controller/store/metric_names.h"

namespace tandem {

void TailRecorder::Begin() {
  begun_ = clock_.Now();
  arrivals_.clear();
}

void TailRecorder::Arrived(const Sample& sample) {
  arrivals_.push_back({.index = static_cast<int64_t>(sample.sample_id & 0xfffu),
                       .sample = {.group = sample.group,
                                  .prompt_tokens = sample.prompt_tokens,
                                  .response_tokens = sample.response_tokens(),
                                  .arrived = absl::ToDoubleSeconds(clock_.Now() - begun_)}});
}

void TailRecorder::End() {
  if (arrivals_.empty()) return;
  // Groups are issued in their order, and samples of a group in theirs.
  std::sort(arrivals_.begin(), arrivals_.end(), [](const Arrival& a, const Arrival& b) {
    return std::tie(a.sample.group, a.index) < std::tie(b.sample.group, b.index);
  });
  TailPass pass{.seconds = absl::ToDoubleSeconds(clock_.Now() - begun_)};
  for (const Arrival& arrival : arrivals_) pass.samples.push_back(arrival.sample);
  passes_.push_back(std::move(pass));
  arrivals_.clear();
}

double TailRecorder::seconds() const {
  double seconds = 0;
  for (const TailPass& pass : passes_) seconds += pass.seconds;
  return seconds;
}

void TailRecorder::Report(const TailOptions& options,
                          std::map<std::string, double>& metrics) const {
  if (passes_.empty()) return;
  EmptySlots all;
  std::map<std::string, double> saved;
  for (TailPass pass : passes_) {
    pass.slots = options.slots;
    const EmptySlots empty = EmptyOfTail(pass);
    all.slot_seconds += empty.slot_seconds;
    all.capacity += empty.capacity;
    const EngineCost cost = FitEngineCost(pass);
    for (const PredictedCap& cap : options.caps) {
      saved[cap.name] += PredictCap(pass, cost, cap.tokens, options.max_versions).saved();
    }
  }
  metrics[kTailEmptySlotSeconds] = all.slot_seconds;
  metrics[kTailShare] = all.share();
  for (const auto& [name, seconds] : saved) metrics[kPredictedSaving + name] = seconds;
}

}  // namespace tandem
