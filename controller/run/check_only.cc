#include "controller/run/check_only.h"

#include <filesystem>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/formats/files.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

Json WorkerJson(int rank, const WeightCheckResult& result) {
  return {{"rank", rank},
          {"ok", result.ok()},
          {"version", result.version},
          {"expected", result.expected},
          {"checked", result.checked},
          {"missing", result.missing},
          {"unexpected", result.unexpected},
          {"mismatched", result.mismatched},
          {"first_difference", result.first_difference},
          {"differing", result.differing}};
}

}  // namespace

absl::Status CheckOnly(const StepContext& context,
                       Recovery& recovery,
                       const std::string& checkpoint,
                       const std::string& report_file) {
  std::error_code ignored;
  std::filesystem::remove(report_file, ignored);
  TANDEM_ASSIGN_OR_RETURN(const RunPosition position, recovery.Start(checkpoint));
  const std::string directory = recovery.FilesToCheck();
  TANDEM_ASSIGN_OR_RETURN(const auto results, context.weights.Check(directory));
  const std::string reference = context.weights.check_files().Describe(directory);
  context.progress.OnMessage(
      fmt::format("weight check of version {} against {}", position.version, reference));
  const absl::Status verdict = Verdict(results, reference);
  Json json = {{"ok", verdict.ok()},
               {"version", position.version},
               {"oracle", reference == kTrainersOwnWeights ? "" : reference},
               {"workers", Json::array()}};
  for (const auto& [rank, result] : results) {
    std::string text = CheckText(rank, result);
    for (const std::string& name : result.differing) text += "\n  differs: " + name;
    context.progress.OnMessage(text);
    json["workers"].push_back(WorkerJson(rank, result));
  }
  const absl::Status written = WriteFileAtomically(report_file, json.dump(1) + "\n");
  if (verdict.ok()) context.progress.OnMessage("weights agree");
  context.progress.OnMessage("report " + report_file);
  return verdict.ok() ? written : verdict;
}

}  // namespace tandem
