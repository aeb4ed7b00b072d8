// Prints replies of the API as tables or as JSON.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "tandem/v1/controller.pb.h"

namespace tandem {

std::string StatusTable(const v1::GetStatusResponse& status);
// The newest events and, of a run that was read from its files, the last call to each worker and
// the last lines of each log.
std::string PostMortemText(const v1::GetStatusResponse& status);
// Describes the effect of a pause that was just requested, given the run's `status`.
std::string PauseText(const v1::GetStatusResponse& status);
// A line about partial rollout in the newest of `steps`; empty without it.
std::string NewestStepText(const v1::ListStepsResponse& steps);
// Which steps were lost and are not made again yet (GetStatusResponse.last_lost_step). Empty: none.
std::string NotMadeAgainText(const v1::GetStatusResponse& status);
// Adds a table about partial rollout or, without it, a line about the savings that a cap would
// bring. Steps that were undone (ListStepsRequest.undone) get a table of their own.
std::string StepsTable(const v1::ListStepsResponse& steps);
// The table, or a line where there are no undone steps.
std::string StepsText(const v1::ListStepsResponse& steps, bool undone);
// What was asked for with ListStepsRequest.details: a line for each histogram, update, sync, and
// rollout's load. Says where the build that recorded the step recorded none of it.
std::string StepDetailsText(const v1::StepRecord& step);
// A column for each of the metrics; "-" where a step has none.
std::string MetricsTable(const v1::ListStepsResponse& steps,
                         const std::vector<std::string>& metrics);
// Shortens prompts and responses to `width` characters, unless it is 0. Control characters are
// escaped, so that none reach the terminal.
std::string SamplesTable(const v1::ListSamplesResponse& samples, size_t width);
std::string EvaluationTable(const v1::EvaluateResponse& evaluation);
std::string CheckTable(const v1::CheckResponse& check);

// One line of JSON with the field names of the .proto files.
std::string ToJsonText(const google::protobuf::Message& message);

// Prints the answer of a call: as JSON, or as the text that was made of it.
void PrintAnswer(std::ostream& out,
                 bool json,
                 const google::protobuf::Message& answer,
                 const std::string& text);

}  // namespace tandem
