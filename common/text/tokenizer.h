// The tokenizer of a model: byte-level BPE as Hugging Face's tokenizer.json describes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/text/added_tokens.h"
#include "common/text/bpe_model.h"
#include "common/text/pre_tokenizer.h"
#include "common/text/string_map.h"
#include "common/text/text_settings.h"
#include "common/text/token_decoder.h"

namespace tandem {

struct TokenizerSpec;

// Immutable after loading; all const methods are thread-safe.
class Tokenizer {
 public:
  // Reads tokenizer.json, and tokenizer_config.json, chat_template.jinja and generation_config.json
  // (else config.json) where they exist.
  // NotFound: no tokenizer.json. InvalidArgument: corrupt, no BPE, no merges, or a component that
  // is not supported; the message names file, reason and remedy.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& model_dir);
  // tokenizer.json alone: no named special tokens, no chat template.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromJson(const std::string& json,
                                                             const std::string& name,
                                                             TextSettings settings = {});

  // Special tokens written in the text are recognised either way; `add_special_tokens` adds those
  // of the post-processor (a BOS, say). InvalidArgument: not UTF-8. ResourceExhausted: see Regex.
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& text,
                                              bool add_special_tokens) const;

  // Ids outside the vocabulary are skipped. Bytes that are not UTF-8 become U+FFFD.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The largest id in use plus 1, added tokens included. Models may have more embedding rows.
  int64_t vocab_size() const { return static_cast<int64_t>(tokens_.size()); }

  // The 128-bit XXH3, as 32 hex digits, of everything that determines how text becomes ids and
  // back. Equal content gives an equal digest, however the file is formatted.
  const std::string& digest() const { return digest_; }

  // Ids that end a response: those of generation_config.json, then the named eos_token.
  const std::vector<int32_t>& eos_token_ids() const { return eos_token_ids_; }

  std::optional<int32_t> TokenId(std::string_view token) const;
  // The token as written in the vocabulary; nullopt: the id is not in use.
  std::optional<std::string> TokenText(int32_t id) const;

  // As tokenizer_config.json names them.
  std::optional<std::string> bos_token() const { return SpecialToken("bos_token"); }
  std::optional<std::string> eos_token() const { return SpecialToken("eos_token"); }
  const std::optional<std::string>& chat_template() const { return settings_.chat_template; }
  // The file that contains it, for messages.
  const std::string& chat_template_file() const { return settings_.chat_template_file; }

 private:
  friend class StreamDecoder;
  struct Token {
    std::string text;
    TokenPiece piece;
    bool in_use = false, special = false;
  };

  Tokenizer() = default;
  absl::Status Build(TokenizerSpec spec);
  absl::Status AddTokens(const TokenizerSpec& spec);
  void FindEosIds();
  absl::Status EncodeText(std::string_view text, std::vector<int32_t>& out) const;
  std::optional<std::string> SpecialToken(const std::string& name) const;
  // nullptr: the id adds nothing to the text.
  const TokenPiece* PieceOf(int32_t id, bool skip_special_tokens) const;

  TextSettings settings_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<BpeModel> model_;
  PostProcessor post_processor_;
  DecoderRule decoder_;
  AddedTokenMatcher raw_matcher_, normalized_matcher_;
  StringMap<int32_t> ids_;
  std::vector<Token> tokens_;  // by id
  std::vector<int32_t> eos_token_ids_;
  std::string digest_;
};

// Decoding of a response while it is being generated. Returns complete characters only and never
// takes text back, so that stop strings can be matched as tokens arrive. All returned pieces
// together equal Tokenizer::Decode of all ids. Not thread-safe; the tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(&tokenizer),
        assembler_(tokenizer.decoder_),
        skip_special_tokens_(skip_special_tokens) {}

  // The text that became final with this token, often "" in the middle of a character.
  std::string Push(int32_t id) {
    const TokenPiece* piece = tokenizer_->PieceOf(id, skip_special_tokens_);
    return piece == nullptr ? std::string() : assembler_.Push(*piece);
  }

  // At the end of the response: an incomplete character becomes U+FFFD.
  std::string Finish() { return assembler_.Finish(); }

  // Whether bytes of an incomplete character are held back.
  bool has_pending() const { return assembler_.has_pending(); }

 private:
  const Tokenizer* tokenizer_;
  PieceAssembler assembler_;
  bool skip_special_tokens_;
};

// Identifies a tokenizer, so that two processes can check that they use the same ids.
struct TokenizerSpec;

// 32 hex digits.
std::string TokenizerDigest(const TokenizerSpec& spec);

}  // namespace tandem
