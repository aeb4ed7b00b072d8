// The `decoder` of a tokenizer.json: the text of a sequence of tokens, token by token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

namespace tandem {

// How tokens become text. Supports ByteLevel; Sequence of Replace (of a string), ByteFallback, Fuse
// and a leading Strip; and none (tokens joined by spaces).
struct DecoderRule {
  enum class Kind { kByteLevel, kPieces, kJoinWithSpaces };
  Kind kind = Kind::kJoinWithSpaces;
  std::string replace_from, replace_to;  // kPieces; empty from: nothing is replaced
  bool byte_fallback = false;            // kPieces: runs of <0xHH> become bytes
  std::string strip;                     // kPieces: removed at the very start,
  int64_t strip_count = 0;               // at most this often

  // InvalidArgument names a decoder that is not supported.
  static absl::StatusOr<DecoderRule> FromJson(const nlohmann::json& json);
};

// What one token adds to the text.
struct TokenPiece {
  std::string bytes;
  bool is_byte = false;  // one byte of a byte-fallback run
};
TokenPiece MakeTokenPiece(const DecoderRule& rule, const std::string& token);

// Joins pieces. Text that was returned never changes; the bytes of an incomplete character wait for
// the next piece. Not thread-safe.
class PieceAssembler {
 public:
  explicit PieceAssembler(const DecoderRule& rule)
      : rule_(&rule), strips_left_(rule.strip.empty() ? 0 : rule.strip_count) {}

  // Returns the text that became final.
  std::string Push(const TokenPiece& piece);
  // Returns the rest; an incomplete character becomes U+FFFD.
  std::string Finish();
  // Whether bytes of an incomplete character are waiting.
  bool has_pending() const { return !pending_.empty(); }

 private:
  void FlushByteRun(std::string& out);
  std::string Strip(std::string text);

  const DecoderRule* rule_;
  std::string pending_;
  int64_t strips_left_;
  bool first_ = true;
};

// The `post_processor` of a tokenizer.json: adds special tokens around a text.
struct PostProcessor {
  std::vector<int32_t> prefix, suffix;

  // Supports TemplateProcessing (the `single` form), ByteLevel (which moves offsets only) and
  // Sequence. null: nothing is added. InvalidArgument names another type.
  static absl::StatusOr<PostProcessor> FromJson(const nlohmann::json& json);
};

}  // namespace tandem
