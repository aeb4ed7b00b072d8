#include "controller/wire/run_answers.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "controller/store/record_pages.h"
#include "controller/store/time_stamp.h"
#include "controller/wire/record_codec.h"
#include "controller/wire/sample_filter.h"
#include "tandem/v1/controller.pb.h"

namespace tandem {
namespace {

constexpr int64_t kMaxSteps = 1000;
constexpr int64_t kMaxSamples = 200;
constexpr size_t kPageBytes = 3 << 20;

// The first `bytes` of a text, less what would split a character of UTF-8.
std::string FirstBytes(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0u) == 0x80u) --bytes;
  return text.substr(0, bytes);
}

// Shortens the texts of a sample that alone would exceed a page.
void CutTexts(v1::SampleRecord& sample) {
  if (sample.ByteSizeLong() <= kPageBytes) return;
  constexpr size_t kTextBytes = kPageBytes / 4;
  sample.set_prompt(FirstBytes(sample.prompt(), kTextBytes));
  sample.set_response(FirstBytes(sample.response(), kTextBytes));
  sample.set_ground_truth(FirstBytes(sample.ground_truth(), kTextBytes));
  sample.set_texts_cut(true);
}

// Leaves out every second load record of each rollout, as often as a step that alone would exceed a
// page needs it.
void ThinLoad(v1::StepRecord& step) {
  auto& load = *step.mutable_load();
  while (step.ByteSizeLong() > kPageBytes) {
    std::map<int32_t, int> seen;  // records by rank
    int kept = 0;
    for (int i = 0; i < load.size(); ++i) {
      if (seen[load[i].rank()]++ % 2 == 0) load.SwapElements(i, kept++);
    }
    if (kept == load.size()) return;
    load.DeleteSubrange(kept, load.size() - kept);
  }
}

// `step`, or the newest that is finished for 0; 0: none is.
absl::StatusOr<int64_t> StepOrNewest(RunRecords& records, int64_t step) {
  if (step != 0) return step;
  TANDEM_ASSIGN_OR_RETURN(const auto newest,
                          records.ListSteps({.limit = 1, .workers = false, .phases = false}));
  return newest.empty() ? 0 : newest.back().step;
}

v1::GroupRecord ToProto(const GroupRecord& group) {
  v1::GroupRecord proto;
  proto.set_group(group.group);
  proto.set_samples(group.samples);
  proto.set_reward_mean(group.reward_mean);
  proto.set_reward_std(group.reward_std);
  proto.set_kind(GroupKindName(group.kind));
  return proto;
}

}  // namespace

absl::StatusOr<v1::ListStepsResponse> AnswerSteps(RunRecords& records,
                                                  const v1::ListStepsRequest& request) {
  const int64_t limit =
      request.limit() <= 0 ? kMaxSteps : std::min<int64_t>(request.limit(), kMaxSteps);
  const bool all_metrics = request.metrics().empty();
  TANDEM_ASSIGN_OR_RETURN(
      const std::vector<StepRecord> steps,
      records.ListSteps({.first_step = request.first_step(),
                         .last_step = request.last_step(),
                         .limit = limit,
                         .max_bytes = kPageBytes,
                         .undone = request.undone(),
                         .workers = !request.no_ledgers(),
                         .phases = all_metrics,
                         .details = request.details(),
                         .metrics = {request.metrics().begin(), request.metrics().end()}}));
  std::vector<v1::StepRecord> page;  // from the newest on
  size_t bytes = 0;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    v1::StepRecord proto = tandem::ToProto(*step);
    ThinLoad(proto);
    bytes += proto.ByteSizeLong();
    // A page ends between two steps: a step may have been undone several times.
    if (!page.empty() && bytes > kPageBytes && page.back().step() != step->step) break;
    page.push_back(std::move(proto));
  }
  v1::ListStepsResponse response;
  for (auto proto = page.rbegin(); proto != page.rend(); ++proto) {
    *response.add_steps() = std::move(*proto);
  }
  return response;
}

namespace {

// The step of the newest validation; -1: there was none.
absl::StatusOr<int64_t> NewestEvaluation(RunRecords& records) {
  int64_t newest = -1;
  TANDEM_RETURN_IF_ERROR(ForEachEvaluation(
      records, {}, [&newest](const EvaluationRecord& evaluation) { newest = evaluation.step; }));
  return newest;
}

// The step that a request asks for; 0 with `prompt_id`: all.
absl::StatusOr<int64_t> StepOf(RunRecords& records, const v1::ListSamplesRequest& request) {
  const bool every = request.prompt_id() != 0 && request.step() == 0;
  if (every || (request.evaluation() && request.has_step())) return request.step();
  if (request.evaluation()) return NewestEvaluation(records);
  return StepOrNewest(records, request.step());
}

}  // namespace

absl::StatusOr<v1::ListSamplesResponse> AnswerSamples(RunRecords& records,
                                                      const v1::ListSamplesRequest& request) {
  const int64_t limit =
      request.limit() <= 0 ? kMaxSamples : std::min<int64_t>(request.limit(), kMaxSamples);
  SampleQuery query = {.limit = limit,
                       .offset = std::max<int64_t>(0, request.offset()),
                       .max_bytes = kPageBytes,
                       .undone_by = request.undone_by(),
                       .prompt_id = request.prompt_id(),
                       .evicted = request.evicted(),
                       .evaluation = request.evaluation(),
                       .contains = request.contains()};
  if (request.has_sample_id()) query.sample_id = request.sample_id();
  TANDEM_ASSIGN_OR_RETURN(query.conditions, ParseSampleFilter(request.where()));
  TANDEM_ASSIGN_OR_RETURN(const auto order, ParseSampleOrder(request.sort()));
  if (order) query.order = order->field;
  if (order) query.descending = order->descending;
  TANDEM_ASSIGN_OR_RETURN(query.step, StepOf(records, request));
  TANDEM_ASSIGN_OR_RETURN(const SampleRecordPage page, records.ListSamples(query));
  v1::ListSamplesResponse response;
  for (const GroupRecord& group : page.groups) *response.add_groups() = ToProto(group);
  size_t bytes = response.ByteSizeLong();
  for (const SampleRecord& sample : page.samples) {
    v1::SampleRecord proto = tandem::ToProto(sample);
    CutTexts(proto);
    bytes += proto.ByteSizeLong();
    if (response.samples_size() > 0 && bytes > kPageBytes) break;
    *response.add_samples() = std::move(proto);
  }
  response.set_total(page.total);
  return response;
}

void AddEventsToStatus(const std::vector<EventRecord>& events, v1::GetStatusResponse& status) {
  for (const EventRecord& event : events) {
    v1::RunEvent* const proto = status.add_events();
    proto->set_time(StampText(event.time_us));
    proto->set_step(event.step);
    proto->set_severity(event.severity);
    proto->set_kind(event.kind);
    proto->set_worker(event.worker);
    proto->set_text(event.text);
  }
}

}  // namespace tandem
