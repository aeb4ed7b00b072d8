#include "common/text/token_decoder.h"

#include <string>

#include <nlohmann/json.hpp>

#include "common/base/json_integer.h"
#include "common/base/status.h"
#include "common/text/bpe_model.h"
#include "common/text/unicode/utf8.h"

namespace tandem {
namespace {

constexpr size_t kMaxReplacement = 16;  // for each of many places in each token

absl::Status Unsupported(const std::string& type) {
  return InvalidArgument(
      "decoder '{}' is not supported (ByteLevel, and Sequence of Replace, ByteFallback, Fuse and a "
      "leading Strip are); use a model with a byte-level BPE tokenizer",
      type);
}

absl::Status AddStep(const nlohmann::json& json, DecoderRule& rule) {
  const std::string type = json.at("type").get<std::string>();
  if (type == "Fuse") return absl::OkStatus();
  if (type == "ByteFallback") {
    rule.byte_fallback = true;
  } else if (type == "Replace" && json.at("pattern").contains("String") &&
             rule.replace_from.empty()) {
    rule.replace_from = json.at("pattern").at("String").get<std::string>();
    rule.replace_to = json.at("content").get<std::string>();
    if (rule.replace_to.size() > kMaxReplacement) {
      return InvalidArgument("decoder Replace puts {} bytes in, {} are allowed",
                             rule.replace_to.size(), kMaxReplacement);
    }
  } else if (type == "Strip" && IntegerOf<int>(json.value("stop", nlohmann::json(0))) == 0) {
    rule.strip = json.at("content").get<std::string>();
    rule.strip_count =
        rule.strip.empty() ? 0 : IntegerOf<int>(json.value("start", nlohmann::json(0)));
  } else {
    return Unsupported(type);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DecoderRule> DecoderRule::FromJson(const nlohmann::json& json) {
  DecoderRule rule;
  if (json.is_null()) return rule;
  const std::string type = json.at("type").get<std::string>();
  if (type == "ByteLevel") {
    rule.kind = Kind::kByteLevel;
    return rule;
  }
  if (type != "Sequence") return Unsupported(type);
  const nlohmann::json& steps = json.at("decoders");
  if (steps.size() == 1) return FromJson(steps.at(0));
  rule.kind = Kind::kPieces;
  for (const nlohmann::json& step : steps) TANDEM_RETURN_IF_ERROR(AddStep(step, rule));
  return rule;
}

TokenPiece MakeTokenPiece(const DecoderRule& rule, const std::string& token) {
  if (rule.kind == DecoderRule::Kind::kByteLevel) {
    // A token with characters outside the alphabet (an added one with a space) is its own text.
    return {FromByteLevel(token).value_or(token), false};
  }
  if (rule.kind == DecoderRule::Kind::kJoinWithSpaces) return {token, false};
  std::string text = token;
  if (!rule.replace_from.empty()) {
    for (size_t pos = 0; (pos = text.find(rule.replace_from, pos)) != std::string::npos;
         pos += rule.replace_to.size()) {
      text.replace(pos, rule.replace_from.size(), rule.replace_to);
    }
  }
  if (rule.byte_fallback) {
    if (const auto byte = ParseByteToken(text))
      return {std::string(1, static_cast<char>(*byte)), true};
  }
  return {text, false};
}

// A run of fallback bytes is either text as a whole or one U+FFFD per byte.
void PieceAssembler::FlushByteRun(std::string& out) {
  if (IsValidUtf8(pending_)) {
    out += pending_;
  } else {
    for (size_t i = 0; i < pending_.size(); ++i) AppendUtf8(kReplacementCharacter, out);
  }
  pending_.clear();
}

std::string PieceAssembler::Strip(std::string text) {
  while (strips_left_ > 0 && !text.empty()) {
    if (!text.starts_with(rule_->strip)) {
      strips_left_ = 0;
    } else {
      text.erase(0, rule_->strip.size());
      --strips_left_;
    }
  }
  return text;
}

std::string PieceAssembler::Push(const TokenPiece& piece) {
  std::string out;
  switch (rule_->kind) {
    case DecoderRule::Kind::kByteLevel:
      pending_ += piece.bytes;
      DrainUtf8(pending_, out);
      return out;
    case DecoderRule::Kind::kJoinWithSpaces:
      out = first_ ? piece.bytes : " " + piece.bytes;
      first_ = false;
      return out;
    case DecoderRule::Kind::kPieces:
      break;
  }
  if (piece.is_byte) {
    pending_ += piece.bytes;
    return out;
  }
  FlushByteRun(out);
  out += piece.bytes;
  return Strip(std::move(out));
}

std::string PieceAssembler::Finish() {
  std::string out;
  if (rule_->kind == DecoderRule::Kind::kPieces) {
    FlushByteRun(out);
    return Strip(std::move(out));
  }
  FinishUtf8(pending_, out);
  return out;
}

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
    const auto ids = IntegersOf<int32_t>(json.at("special_tokens").at(name).at("ids"));
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
        "use a model with a byte-level BPE tokenizer",
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
