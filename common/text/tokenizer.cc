#include "common/text/tokenizer.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/tokenizer_json.h"
#include "common/text/unicode/utf8.h"
#include "common/types/xxh3.h"

namespace tandem {
namespace {

constexpr size_t kMaxEncodedBytes = size_t{64} << 20;  // ICU counts in 32 bits

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& model_dir) {
  TANDEM_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(model_dir + "/tokenizer.json"));
  TANDEM_ASSIGN_OR_RETURN(TextSettings settings, ReadTextSettings(model_dir));
  return FromJson(json, model_dir + "/tokenizer.json", std::move(settings));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(path));
  return FromJson(json, path);
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(const std::string& json,
                                                               const std::string& name,
                                                               TextSettings settings) {
  TANDEM_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerJson(json, name));
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer);
  tokenizer->settings_ = std::move(settings);
  try {
    const absl::Status built = tokenizer->Build(std::move(spec));
    if (!built.ok()) return Annotate(built, name);
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(
        "{}: a component has a missing or mistyped field ({}); save the tokenizer "
        "again in the tokenizer.json format",
        name, error.what());
  }
  return tokenizer;
}

absl::Status Tokenizer::Build(TokenizerSpec spec) {
  TANDEM_ASSIGN_OR_RETURN(normalizer_, Normalizer::FromJson(spec.normalizer));
  TANDEM_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::FromJson(spec.pre_tokenizer));
  TANDEM_ASSIGN_OR_RETURN(post_processor_, PostProcessor::FromJson(spec.post_processor));
  TANDEM_ASSIGN_OR_RETURN(decoder_, DecoderRule::FromJson(spec.decoder));
  spec.model.byte_level = pre_tokenizer_.byte_level();
  TANDEM_ASSIGN_OR_RETURN(model_, BpeModel::Create(spec.model));
  TANDEM_RETURN_IF_ERROR(AddTokens(spec));
  for (const auto* side : {&post_processor_.prefix, &post_processor_.suffix}) {
    for (int32_t id : *side) {
      if (!TokenText(id)) return InvalidArgument("post_processor adds the unknown id {}", id);
    }
  }
  digest_ = TokenizerDigest(spec);
  FindEosIds();
  return absl::OkStatus();
}

absl::Status Tokenizer::AddTokens(const TokenizerSpec& spec) {
  const auto add = [this](const std::string& text, int32_t id) -> Token& {
    if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
    Token& token = tokens_[id];
    token = Token{text, MakeTokenPiece(decoder_, text), true, false};
    ids_.emplace(text, id);
    return token;
  };
  ids_.reserve(spec.model.vocab.size() + spec.added_tokens.size());
  for (const auto& [text, id] : spec.model.vocab) add(text, id);
  for (const AddedToken& token : spec.added_tokens) {
    add(token.content, token.id).special = token.special;
    if (!token.normalized) {
      raw_matcher_.Add(token, token.content);
      continue;
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string pattern, normalizer_.Apply(token.content));
    normalized_matcher_.Add(token, pattern);
  }
  return absl::OkStatus();
}

void Tokenizer::FindEosIds() {
  eos_token_ids_ = settings_.eos_token_ids;
  const std::optional<std::string> eos = eos_token();
  const std::optional<int32_t> id = eos ? TokenId(*eos) : std::nullopt;
  if (id && std::find(eos_token_ids_.begin(), eos_token_ids_.end(), *id) == eos_token_ids_.end()) {
    eos_token_ids_.push_back(*id);
  }
}

absl::Status Tokenizer::EncodeText(std::string_view text, std::vector<int32_t>& out) const {
  std::string normalized;
  if (!normalizer_.is_identity()) {
    TANDEM_ASSIGN_OR_RETURN(normalized, normalizer_.Apply(text));
    text = normalized;
  }
  for (const TextPiece& piece : normalized_matcher_.Split(text)) {
    if (piece.id >= 0) {
      out.push_back(piece.id);
      continue;
    }
    std::deque<std::string> storage;
    TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string_view> words,
                            pre_tokenizer_.Split(piece.text, storage));
    for (std::string_view word : words) model_->EncodeWord(word, out);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(const std::string& text,
                                                       bool add_special_tokens) const {
  if (!IsValidUtf8(text)) {
    return InvalidArgument("text of {} bytes is not valid UTF-8; convert it before tokenizing",
                           text.size());
  }
  if (text.size() > kMaxEncodedBytes) {
    return InvalidArgument(
        "a text of {} bytes is too long to be tokenized, {} are allowed: shorten it", text.size(),
        kMaxEncodedBytes);
  }
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = post_processor_.prefix;
  for (const TextPiece& piece : raw_matcher_.Split(text)) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      TANDEM_RETURN_IF_ERROR(EncodeText(piece.text, ids));
    }
  }
  if (add_special_tokens) {
    ids.insert(ids.end(), post_processor_.suffix.begin(), post_processor_.suffix.end());
  }
  return ids;
}

const TokenPiece* Tokenizer::PieceOf(int32_t id, bool skip_special_tokens) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size() || !tokens_[id].in_use) return nullptr;
  return skip_special_tokens && tokens_[id].special ? nullptr : &tokens_[id].piece;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  PieceAssembler assembler(decoder_);
  std::string text;
  for (int32_t id : ids) {
    if (const TokenPiece* piece = PieceOf(id, skip_special_tokens)) text += assembler.Push(*piece);
  }
  return text + assembler.Finish();
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<std::string> Tokenizer::TokenText(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size() || !tokens_[id].in_use) {
    return std::nullopt;
  }
  return tokens_[id].text;
}

std::optional<std::string> Tokenizer::SpecialToken(const std::string& name) const {
  const auto it = settings_.special_tokens.find(name);
  return it == settings_.special_tokens.end() ? std::nullopt : std::optional(it->second);
}

namespace {

class Hasher {
 public:
  // Every field is written with its length, so that no two lists of fields look alike.
  void Add(const std::string& field) {
    Add(static_cast<int64_t>(field.size()));
    hash_.Append(field.data(), field.size());
  }
  void Add(int64_t number) { hash_.Append(&number, sizeof(number)); }

  std::string Hex() const { return hash_.Finish().Hex(); }

 private:
  Xxh3Stream hash_;
};

void AddModel(const BpeSpec& model, Hasher& hasher) {
  std::vector<std::pair<int32_t, std::string>> vocab;
  for (const auto& [token, id] : model.vocab) vocab.emplace_back(id, token);
  std::sort(vocab.begin(), vocab.end());
  hasher.Add(static_cast<int64_t>(vocab.size()));
  for (const auto& [id, token] : vocab) {
    hasher.Add(id);
    hasher.Add(token);
  }
  hasher.Add(static_cast<int64_t>(model.merges.size()));
  for (const auto& [left, right] : model.merges) {
    hasher.Add(left);
    hasher.Add(right);
  }
  hasher.Add(model.unk_token.value_or(""));
  hasher.Add(model.ignore_merges + 2 * model.byte_fallback + 4 * model.fuse_unk);
}

}  // namespace

std::string TokenizerDigest(const TokenizerSpec& spec) {
  Hasher hasher;
  AddModel(spec.model, hasher);
  std::vector<AddedToken> added = spec.added_tokens;
  std::sort(added.begin(), added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  hasher.Add(static_cast<int64_t>(added.size()));
  for (const AddedToken& t : added) {
    hasher.Add(t.id);
    hasher.Add(t.content);
    hasher.Add(t.special + 2 * t.single_word + 4 * t.lstrip + 8 * t.rstrip + 16 * t.normalized);
  }
  // nlohmann::json keeps keys sorted: the dump does not depend on the file's order.
  for (const auto* part :
       {&spec.normalizer, &spec.pre_tokenizer, &spec.post_processor, &spec.decoder}) {
    hasher.Add(part->dump());
  }
  return hasher.Hex();
}

}  // namespace tandem
