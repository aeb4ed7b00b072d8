#include "common/text/post_processor.h"

#include <string>

#include <nlohmann/json.hpp>

#include "common/base/status_macros.h"

namespace tandem {
namespace {

absl::Status ApplyTemplate(const nlohmann::json& json, PostProcessor& result) {
  std::vector<int32_t> before, after;
  int sequences = 0;
  for (const nlohmann::json& item : json.at("single")) {
    if (item.contains("Sequence")) {
      ++sequences;
      continue;
    }
    const std::string name = item.at("SpecialToken").at("id").get<std::string>();
    const auto ids = json.at("special_tokens").at(name).at("ids").get<std::vector<int32_t>>();
    std::vector<int32_t>& side = sequences > 0 ? after : before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (sequences != 1) {
    return InvalidArgument("post_processor TemplateProcessing holds the text {} times, not once",
                           sequences);
  }
  result.prefix.insert(result.prefix.begin(), before.begin(), before.end());
  result.suffix.insert(result.suffix.end(), after.begin(), after.end());
  return absl::OkStatus();
}

absl::Status AddTo(const nlohmann::json& json, PostProcessor& result) {
  if (json.is_null()) return absl::OkStatus();
  const std::string type = json.at("type").get<std::string>();
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "TemplateProcessing") return ApplyTemplate(json, result);
  if (type != "Sequence") {
    return InvalidArgument(
        "post_processor '{}' is not supported (TemplateProcessing, ByteLevel and Sequence are); "
        "use "
        "a model with a byte-level BPE tokenizer",
        type);
  }
  for (const nlohmann::json& part : json.at("processors")) {
    TANDEM_RETURN_IF_ERROR(AddTo(part, result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const nlohmann::json& json) {
  PostProcessor result;
  TANDEM_RETURN_IF_ERROR(AddTo(json, result));
  return result;
}

}  // namespace tandem
