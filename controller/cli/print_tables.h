// Replies of the API as tables for people, or as JSON.
#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "tandem/v1/controller.pb.h"

namespace tandem {

std::string StatusTable(const v1::GetStatusResponse& status);
// What a pause that was just asked for brings about, with the run where `status` says.
std::string PauseText(const v1::GetStatusResponse& status);
// A line on the partial rollout of the newest of `steps`; empty without it.
std::string NewestStepText(const v1::ListStepsResponse& steps);
// With a table of what partial rollout did, or a line on what a cap would have saved.
std::string StepsTable(const v1::ListStepsResponse& steps);
// Prompts and responses are shortened to `width` characters unless it is 0; control characters are
// shown, not sent to the terminal.
std::string SamplesTable(const v1::ListSamplesResponse& samples, size_t width);
std::string EvaluationTable(const v1::EvaluateResponse& evaluation);
std::string CheckTable(const v1::CheckResponse& check);

// One line of JSON with the field names of the .proto files.
std::string ToJsonText(const google::protobuf::Message& message);

// Printable on one line: control characters as escapes, cut after `width` code points (0: not cut).
std::string OneLine(const std::string& text, size_t width);

}  // namespace tandem
