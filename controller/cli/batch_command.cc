#include "controller/cli/batch_command.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/process/exit_code.h"
#include "common/text/tokenizer.h"
#include "controller/report/format.h"
#include "controller/store/batch_file.h"
#include "controller/store/batch_stats.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownGroups = 20;

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Decoded(const BatchTexts& texts, const std::vector<int32_t>& ids) {
  return texts.tokenizer->Decode(ids, /*skip_special_tokens=*/false);
}

std::string Number(double value) { return fmt::format("{:.6g}", value); }

// The text of a value that JSON cannot represent.
std::string NotFinite(double value) {
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::string PlaceText(const BatchPosition& place) {
  const std::string sample = fmt::format("sample {:#x}", place.sample_id);
  return place.position < 0 ? sample : fmt::format("{} response token {}", sample, place.position);
}

std::string BatchVersionsText(const BatchStats& stats) {
  std::vector<std::string> versions;
  for (const auto& [version, tokens] : stats.version_tokens) {
    versions.push_back(fmt::format("v{}:{}", version, tokens));
  }
  return fmt::format("response tokens by weight version: {}; {} samples have several\n",
                     fmt::join(versions, " "), stats.mixed_samples);
}

std::string Head(const BatchReader& batch, const BatchStats& stats) {
  const SavedBatchInfo& info = batch.info();
  std::string text =
      fmt::format("{}\nstep {}, sampled by weight version {}, saved at version {}; {}, format {}\n",
                  batch.path(), info.step, info.sampling_version, info.version,
                  FormatBytes(batch.file_bytes()), batch.version());
  if (!info.failure.empty()) text += fmt::format("the run stopped here: {}\n", info.failure);
  if (!info.checkpoint.empty()) {
    text += fmt::format("newest checkpoint before it: {}\n", info.checkpoint);
  }
  text += fmt::format(
      "{} samples in {} groups; {} prompt tokens, {} response tokens, {} of them trained "
      "({} masked)\n",
      stats.samples, stats.groups.size(), stats.prompt_tokens, stats.response_tokens,
      stats.trained_tokens, stats.response_tokens - stats.trained_tokens);
  std::vector<std::string> reasons;
  for (const auto& [name, count] : stats.finish_reasons) {
    reasons.push_back(fmt::format("{} {}", name, count));
  }
  text += fmt::format("finish reasons: {}\n", fmt::join(reasons, ", "));
  if (stats.version_tokens.size() > 1) text += BatchVersionsText(stats);
  if (stats.off_support > 0) text += fmt::format("off-support: {} samples\n", stats.off_support);
  for (const SavedMiniBatch& mini : info.mini_batches) {
    text += fmt::format("mini-batch {} of pass {}: {} samples, {} trained tokens{}\n", mini.index,
                        info.epoch, mini.samples, mini.trained_tokens,
                        mini.index == info.mini_batch ? "; its update failed" : "");
  }
  return text;
}

std::string FieldTable(const BatchStats& stats) {
  std::vector<std::vector<std::string>> rows = {
      {"field", "of each", "samples", "values", "min", "mean", "max", "not finite"}};
  for (const FieldStats& field : stats.fields) {
    const int64_t bad = field.nan + field.infinite;
    const bool any = field.values > bad;
    rows.push_back({field.name, field.per_token ? "token" : "sample", fmt::to_string(field.samples),
                    fmt::to_string(field.values), any ? Number(field.min) : "-",
                    any ? Number(field.mean) : "-", any ? Number(field.max) : "-",
                    bad == 0 ? "-" : fmt::to_string(bad)});
  }
  return FormatTable(rows);
}

std::string GroupTable(const BatchStats& stats) {
  std::vector<std::vector<std::string>> rows = {
      {"group", "samples", "response tokens", "reward min", "mean", "max"}};
  for (size_t i = 0; i < std::min(kShownGroups, stats.groups.size()); ++i) {
    const GroupStats& group = stats.groups[i];
    rows.push_back({fmt::to_string(group.group), fmt::to_string(group.samples),
                    fmt::to_string(group.response_tokens), Number(group.reward_min),
                    Number(group.reward_mean), Number(group.reward_max)});
  }
  std::string text = FormatTable(rows);
  if (stats.groups.size() > kShownGroups) {
    text += fmt::format("and {} more: --json has all\n", stats.groups.size() - kShownGroups);
  }
  const auto equal =
      std::count_if(stats.groups.begin(), stats.groups.end(),
                    [](const GroupStats& group) { return group.reward_min == group.reward_max; });
  return text + fmt::format("groups with equal rewards: {} of {}\n", equal, stats.groups.size());
}

// Ratios of tokens of older weights, which need not be 1.
std::string StaleText(const BatchStats& stats) {
  if (!stats.stale_ratio) return "";
  const RatioStats& ratio = *stats.stale_ratio;
  return fmt::format(
      "ratio exp(trainer - rollout) of {} tokens of older weights: min {}, mean {}, max {}; worst "
      "{}: {}, weight version {}\n",
      ratio.tokens, Number(ratio.min), Number(ratio.mean), Number(ratio.max),
      Number(ratio.worst.value), PlaceText(ratio.worst), ratio.weight_version);
}

std::string RatioText(const BatchStats& stats, const BatchTexts& texts) {
  if (!stats.ratio && stats.stale_ratio) return "";
  if (!stats.ratio) {
    return "no ratio of trainer and rollout: no token in the file has both log-probs "
           "(actor.old_log_prob=recompute saves the trainer's; a run that ended because log-probs "
           "differed saves them too)\n";
  }
  const RatioStats& ratio = *stats.ratio;
  const bool rollout = std::string(ratio.old) == "rollout";
  std::string text = fmt::format(
      "ratio exp(trainer - {}) of {} tokens: min {}, mean {}, max {}; exactly 1 in {}\n"
      "worst ratio {}: {} (token {} of the sequence), group {}, weight version {}{}\n"
      "  log-prob {} {:.9g}, of the trainer {:.9g}\n"
      "  tokens {} [{}] {}\n",
      ratio.old, ratio.tokens, Number(ratio.min), Number(ratio.mean), Number(ratio.max),
      ratio.exactly_one, Number(ratio.worst.value), PlaceText(ratio.worst), ratio.sequence_position,
      ratio.group, ratio.weight_version, ratio.masked ? "; masked: no loss counts it" : "",
      rollout ? "of the rollout" : "recomputed", ratio.old_log_prob, ratio.trainer,
      fmt::join(ratio.before, " "), ratio.token, fmt::join(ratio.after, " "));
  if (texts.tokenizer == nullptr) return text + fmt::format("  no text: {}\n", texts.note);
  return text + fmt::format("  text {} [{}] {}\n", Quoted(Decoded(texts, ratio.before)),
                            Quoted(Decoded(texts, {ratio.token})),
                            Quoted(Decoded(texts, ratio.after)));
}

std::string NotFiniteText(const BatchStats& stats) {
  std::string text;
  for (const FieldStats& field : stats.fields) {
    if (field.not_finite.empty()) continue;
    std::vector<std::string> places;
    for (const BatchPosition& place : field.not_finite) {
      places.push_back(fmt::format("{}: {}", PlaceText(place), NotFinite(place.value)));
    }
    text += fmt::format("{} has {} nan and {} infinite values; {}{}\n", field.name, field.nan,
                        field.infinite, fmt::join(places, ", "),
                        std::ssize(places) < field.nan + field.infinite ? ", ..." : "");
  }
  return text.empty() ? "all values are finite\n" : text;
}

Json FieldsJson(const BatchStats& stats) {
  Json fields = Json::object();
  for (const FieldStats& field : stats.fields) {
    Json json = {{"per_token", field.per_token},
                 {"samples", field.samples},
                 {"values", field.values},
                 {"nan", field.nan},
                 {"infinite", field.infinite}};
    if (field.values > field.nan + field.infinite) {
      json["min"] = field.min;
      json["mean"] = field.mean;
      json["max"] = field.max;
    }
    json["not_finite"] = Json::array();
    for (const BatchPosition& place : field.not_finite) {
      json["not_finite"].push_back({{"sample", fmt::format("{:#x}", place.sample_id)},
                                    {"position", place.position},
                                    {"value", NotFinite(place.value)}});
    }
    fields[field.name] = std::move(json);
  }
  return fields;
}

Json RatioJson(const RatioStats& ratio, const BatchTexts& texts) {
  Json worst = {{"ratio", ratio.worst.value},
                {"sample", fmt::format("{:#x}", ratio.worst.sample_id)},
                {"group", ratio.group},
                {"position", ratio.worst.position},
                {"sequence_position", ratio.sequence_position},
                {"token", ratio.token},
                {fmt::format("{}_log_prob", ratio.old), ratio.old_log_prob},
                {"trainer_log_prob", ratio.trainer},
                {"masked", ratio.masked},
                {"weight_version", ratio.weight_version},
                {"tokens_before", ratio.before},
                {"tokens_after", ratio.after}};
  if (texts.tokenizer != nullptr) {
    worst["text"] = Decoded(texts, {ratio.token});
    worst["text_before"] = Decoded(texts, ratio.before);
    worst["text_after"] = Decoded(texts, ratio.after);
  }
  return {{"tokens", ratio.tokens}, {"exactly_one", ratio.exactly_one},
          {"min", ratio.min},       {"mean", ratio.mean},
          {"max", ratio.max},       {"worst", worst}};
}

}  // namespace

std::string BatchText(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts) {
  return Head(batch, stats) + "\n" + FieldTable(stats) + "\n" + GroupTable(stats) + "\n" +
         RatioText(stats, texts) + StaleText(stats) + NotFiniteText(stats);
}

std::string BatchJson(const BatchReader& batch, const BatchStats& stats, const BatchTexts& texts) {
  const SavedBatchInfo& info = batch.info();
  Json json = {{"file", batch.path()},
               {"bytes", batch.file_bytes()},
               {"format", batch.version()},
               {"step", info.step},
               {"sampling_version", info.sampling_version},
               {"version", info.version},
               {"failure", info.failure},
               {"checkpoint", info.checkpoint},
               {"samples", stats.samples},
               {"prompt_tokens", stats.prompt_tokens},
               {"response_tokens", stats.response_tokens},
               {"trained_tokens", stats.trained_tokens},
               {"off_support", stats.off_support},
               {"finish_reasons", stats.finish_reasons},
               {"pass", info.epoch},
               {"failed_mini_batch", info.mini_batch}};
  json["mini_batches"] = Json::array();
  for (const SavedMiniBatch& mini : info.mini_batches) {
    json["mini_batches"].push_back({{"index", mini.index},
                                    {"samples", mini.samples},
                                    {"trained_tokens", mini.trained_tokens}});
  }
  json["fields"] = FieldsJson(stats);
  json["groups"] = Json::array();
  for (const GroupStats& group : stats.groups) {
    json["groups"].push_back({{"group", group.group},
                              {"samples", group.samples},
                              {"response_tokens", group.response_tokens},
                              {"reward_min", group.reward_min},
                              {"reward_mean", group.reward_mean},
                              {"reward_max", group.reward_max}});
  }
  json["ratio"] = stats.ratio ? RatioJson(*stats.ratio, texts) : Json();
  json["stale_ratio"] = stats.stale_ratio ? RatioJson(*stats.stale_ratio, texts) : Json();
  json["version_tokens"] = Json::object();
  for (const auto& [version, tokens] : stats.version_tokens) {
    json["version_tokens"][fmt::to_string(version)] = tokens;
  }
  json["mixed_samples"] = stats.mixed_samples;
  json["metrics"] = Json::object();
  for (const auto& [name, value] : info.metrics) {
    json["metrics"][name] = std::isfinite(value) ? Json(value) : Json(NotFinite(value));
  }
  json["config"] = info.config_yaml;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  std::error_code error;
  const bool file = std::filesystem::is_regular_file(path, error);
  return file ? Tokenizer::FromFile(path) : Tokenizer::Load(path);
}

absl::Status Inspect(const BatchInspectOptions& options, std::ostream& out) {
  TANDEM_ASSIGN_OR_RETURN(const auto batch, BatchReader::Open(options.file));
  const bool named = !options.tokenizer.empty();
  const auto tokenizer = LoadTokenizer(named ? options.tokenizer : batch->info().model_path);
  if (named) TANDEM_RETURN_IF_ERROR(Annotate(tokenizer.status(), "--tokenizer"));
  BatchTexts texts;
  if (tokenizer.ok()) {
    texts.tokenizer = tokenizer->get();
  } else {
    texts.note = fmt::format("{}; --tokenizer names another model directory",
                             std::string(tokenizer.status().message()));
  }
  const BatchStats stats = SummarizeBatch(*batch);
  out << (options.json ? BatchJson(*batch, stats, texts) : BatchText(*batch, stats, texts));
  return absl::OkStatus();
}

}  // namespace

BatchInspectOutcome BatchInspectCommand(const BatchInspectOptions& options, std::ostream& out) {
  const absl::Status status = Inspect(options, out);
  return {.exit_code = ExitCodeAt(FailedAt::kInputs, status), .error = status};
}

}  // namespace tandem
