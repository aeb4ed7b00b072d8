#include "controller/store/saved_batch.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<FinishReason, const char*>, 5> kFinishReasons = {{
    {FinishReason::kNone, "none"},
    {FinishReason::kStop, "stop"},
    {FinishReason::kLength, "length"},
    {FinishReason::kAborted, "aborted"},
    {FinishReason::kCut, "cut"},
}};

// JSON has no NaN and no infinity: they are written as strings.
Json NumberJson(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double ParseNumber(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument("\"" + text + "\" where a number should be");
}

Json NumbersJson(const std::map<std::string, double>& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = NumberJson(value);
  return json;
}

std::map<std::string, double> ParseNumbers(const Json& json) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : json.items()) numbers[name] = ParseNumber(value);
  return numbers;
}

// Ids are text, because many JSON readers store numbers as doubles and would round them.
std::string IdText(uint64_t id) { return fmt::format("{:#x}", id); }

uint64_t ParseId(const std::string& text) {
  uint64_t id = 0;
  const char* const end = text.data() + text.size();
  if (!text.starts_with("0x")) throw std::invalid_argument("\"" + text + "\" is not a sample id");
  const auto [stop, error] = std::from_chars(text.data() + 2, end, id, 16);
  if (error != std::errc() || stop != end) {
    throw std::invalid_argument("\"" + text + "\" is not a sample id");
  }
  return id;
}

FinishReason ParseFinishReason(const std::string& name) {
  for (const auto& [reason, text] : kFinishReasons) {
    if (name == text) return reason;
  }
  return FinishReason::kNone;  // a reason that only later builds know
}

Json InfoJson(const SavedBatchInfo& info) {
  Json json;
  json["step"] = info.step;
  json["sampling_version"] = info.sampling_version;
  json["version"] = info.version;
  json["failure"] = info.failure;
  json["epoch"] = info.epoch;
  json["mini_batch"] = info.mini_batch;
  json["ranks"] = info.ranks;
  json["model"] = info.model_path;
  json["checkpoint"] = info.checkpoint;
  json["config"] = info.config_yaml;
  json["mini_batches"] = Json::array();
  for (const SavedMiniBatch& mini : info.mini_batches) {
    json["mini_batches"].push_back({{"index", mini.index},
                                    {"samples", mini.samples},
                                    {"trained_tokens", mini.trained_tokens}});
  }
  json["metrics"] = NumbersJson(info.metrics);
  return json;
}

SavedBatchInfo InfoFromJson(const Json& json) {
  SavedBatchInfo info{.step = IntegerOf<int64_t>(json.at("step")),
                      .sampling_version = IntegerOf<int64_t>(json.at("sampling_version")),
                      .version = IntegerOf<int64_t>(json.at("version")),
                      .failure = json.at("failure").get<std::string>(),
                      .epoch = IntegerOf<int64_t>(json.at("epoch")),
                      .mini_batch = IntegerOf<int64_t>(json.at("mini_batch")),
                      .ranks = IntegerOf<int>(json.at("ranks")),
                      .model_path = json.at("model").get<std::string>(),
                      .checkpoint = json.at("checkpoint").get<std::string>(),
                      .config_yaml = json.at("config").get<std::string>(),
                      .metrics = ParseNumbers(json.at("metrics"))};
  for (const Json& mini : json.at("mini_batches")) {
    info.mini_batches.push_back({.index = IntegerOf<int64_t>(mini.at("index")),
                                 .samples = IntegerOf<int64_t>(mini.at("samples")),
                                 .trained_tokens = IntegerOf<int64_t>(mini.at("trained_tokens"))});
  }
  return info;
}

Json EntryJson(const BatchEntry& entry) {
  const SavedSample& sample = entry.meta;
  Json json;
  json["id"] = IdText(sample.sample_id);
  json["group"] = sample.group;
  json["index"] = sample.index;
  json["prompt_tokens"] = sample.prompt_tokens;
  json["trained_tokens"] = sample.trained_tokens;
  json["finish_reason"] = FinishReasonName(sample.finish_reason);
  json["temperature"] = NumberJson(sample.temperature);
  json["off_support"] = sample.off_support;
  json["mini_batch"] = sample.mini_batch;
  json["rank"] = sample.rank;
  json["score"] = NumberJson(sample.score);
  json["reward"] = NumberJson(sample.reward);
  json["advantage"] = NumberJson(sample.advantage);
  json["reward_terms"] = NumbersJson(sample.reward_terms);
  json["segments"] = Json::array();
  for (const Segment& segment : sample.segments) {
    json["segments"].push_back(
        {segment.begin, segment.length, segment.trained, segment.weight_version});
  }
  json["arrays"] = Json::object();
  for (const auto& [name, place] : entry.arrays) json["arrays"][name] = {place.offset, place.count};
  return json;
}

BatchEntry EntryFromJson(const Json& json) {
  BatchEntry entry;
  SavedSample& sample = entry.meta;
  sample.sample_id = ParseId(json.at("id").get<std::string>());
  sample.group = IntegerOf<int64_t>(json.at("group"));
  sample.index = IntegerOf<int64_t>(json.at("index"));
  sample.prompt_tokens = IntegerOf<int64_t>(json.at("prompt_tokens"));
  sample.trained_tokens = IntegerOf<int64_t>(json.at("trained_tokens"));
  sample.finish_reason = ParseFinishReason(json.at("finish_reason").get<std::string>());
  sample.temperature = static_cast<float>(ParseNumber(json.at("temperature")));
  sample.off_support = json.at("off_support").get<bool>();
  sample.mini_batch = IntegerOf<int64_t>(json.at("mini_batch"));
  sample.rank = IntegerOf<int>(json.at("rank"));
  sample.score = ParseNumber(json.at("score"));
  sample.reward = ParseNumber(json.at("reward"));
  sample.advantage = ParseNumber(json.at("advantage"));
  sample.reward_terms = ParseNumbers(json.at("reward_terms"));
  for (const Json& segment : json.at("segments")) {
    sample.segments.push_back({.begin = IntegerOf<int64_t>(segment.at(0)),
                               .length = IntegerOf<int64_t>(segment.at(1)),
                               .trained = segment.at(2).get<bool>(),
                               .weight_version = IntegerOf<int64_t>(segment.at(3))});
  }
  for (const auto& [name, place] : json.at("arrays").items()) {
    entry.arrays[name] = {.offset = IntegerOf<uint64_t>(place.at(0)),
                          .count = IntegerOf<uint64_t>(place.at(1))};
  }
  return entry;
}

}  // namespace

std::string FinishReasonName(FinishReason reason) {
  for (const auto& [known, text] : kFinishReasons) {
    if (reason == known) return text;
  }
  return "none";
}

SavedSample WithoutArrays(SavedSample sample) {
  // Assignment releases the memory, which clear() would keep.
  sample.tokens = std::vector<int32_t>();
  sample.versions = std::vector<int64_t>();
  for (const SavedArray& array : kSavedArrays) sample.*array.values = std::vector<float>();
  return sample;
}

std::string BatchHeaderToJson(const SavedBatchInfo& info, const std::vector<BatchEntry>& entries) {
  Json json;
  json["batch"] = InfoJson(info);
  json["dtypes"] = {{"tokens", "int32"}, {"versions", "int64"}};
  for (const SavedArray& array : kSavedArrays) json["dtypes"][array.name] = "float32";
  json["samples"] = Json::array();
  for (const BatchEntry& entry : entries) json["samples"].push_back(EntryJson(entry));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Turns exceptions of nlohmann and of the functions above into a status.
absl::StatusOr<BatchHeader> BatchHeaderFromJson(const char* text, size_t bytes) try {
  TANDEM_RETURN_IF_ERROR(CheckJsonNesting({text, bytes}));
  const Json json = Json::parse(text, text + bytes);
  BatchHeader header{.info = InfoFromJson(json.at("batch"))};
  for (const Json& sample : json.at("samples")) header.entries.push_back(EntryFromJson(sample));
  return header;
} catch (const std::exception& e) {
  return MakeStatus(absl::StatusCode::kDataLoss, "its header is damaged: {}", e.what());
}

}  // namespace tandem
