#include "common/formats/gguf/gguf_tokenizer.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "common/base/status.h"

namespace tandem {
namespace {

using OrderedJson = nlohmann::ordered_json;

// tokenizer.ggml.token_type, from llama.cpp's llama_token_type.
constexpr int64_t kControl = 3;
constexpr int64_t kUserDefined = 4;
constexpr int64_t kUnused = 5;

// GPT-4's splitting expression; Llama 3 groups up to three digits, Qwen2 takes them one by one.
std::string SplitRegex(const std::string& digits) {
  return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" + digits +
         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
}

OrderedJson ByteLevel(bool add_prefix_space, bool trim_offsets, bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", add_prefix_space},
          {"trim_offsets", trim_offsets},
          {"use_regex", use_regex}};
}

OrderedJson Sequence(OrderedJson first) {
  const bool splits = first["type"] == "Split";
  return {
      {"type", "Sequence"},
      {"pretokenizers", OrderedJson::array({std::move(first), ByteLevel(false, true, !splits)})}};
}

OrderedJson Split(const std::string& regex) {
  return Sequence({{"type", "Split"},
                   {"pattern", {{"Regex", regex}}},
                   {"behavior", "Isolated"},
                   {"invert", false}});
}

absl::StatusOr<OrderedJson> PreTokenizer(const GgufFile& file, const std::string& pre) {
  if (pre == "smollm") return Sequence({{"type", "Digits"}, {"individual_digits", true}});
  if (pre == "gpt-2") return ByteLevel(false, true, true);
  if (pre == "llama-bpe") return Split(SplitRegex("\\p{N}{1,3}"));
  if (pre == "qwen2") return Split(SplitRegex("\\p{N}"));
  return MakeStatus(
      absl::StatusCode::kUnimplemented,
      "{}: tokenizer.ggml.pre {} is not supported (smollm, gpt-2, llama-bpe and qwen2 "
      "are): use the model's Hugging Face directory, which has a tokenizer.json",
      file.path(), pre);
}

// The checked contents of tokenizer.ggml.
struct Vocabulary {
  std::string pre;
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::vector<std::string> merges;
};

absl::StatusOr<Vocabulary> ReadVocabulary(const GgufFile& file) {
  Vocabulary vocabulary;
  TANDEM_ASSIGN_OR_RETURN(const std::string model, file.Text("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return MakeStatus(
        absl::StatusCode::kUnimplemented,
        "{}: tokenizer.ggml.model {} is not supported, only byte-level BPE (gpt2) is; "
        "use another model",
        file.path(), model);
  }
  TANDEM_ASSIGN_OR_RETURN(vocabulary.pre, file.Text("tokenizer.ggml.pre"));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.tokens, file.Texts("tokenizer.ggml.tokens"));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.types, file.Integers("tokenizer.ggml.token_type"));
  TANDEM_ASSIGN_OR_RETURN(vocabulary.merges, file.Texts("tokenizer.ggml.merges"));
  if (vocabulary.types.size() != vocabulary.tokens.size()) {
    return InvalidArgument("{}: tokenizer.ggml has {} tokens but {} token types", file.path(),
                           vocabulary.tokens.size(), vocabulary.types.size());
  }
  return vocabulary;
}

OrderedJson AddedTokens(const Vocabulary& vocabulary) {
  OrderedJson added = OrderedJson::array();
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const bool special = vocabulary.types[id] == kControl;
    if (!special && vocabulary.types[id] != kUserDefined) continue;
    added.push_back({{"id", id},
                     {"content", vocabulary.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", !special},
                     {"special", special}});
  }
  return added;
}

absl::StatusOr<OrderedJson> Model(const GgufFile& file, const Vocabulary& vocabulary) {
  OrderedJson vocab = OrderedJson::object();
  // Appending keeps this linear: an ordered object searches from the front for every new key.
  auto& entries = vocab.get_ref<OrderedJson::object_t&>();
  entries.reserve(vocabulary.tokens.size());
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    // Embedding rows that only pad the table to a round number have no token.
    if (vocabulary.types[id] != kUnused) {
      entries.push_back({vocabulary.tokens[id], OrderedJson(id)});
    }
  }
  OrderedJson merges = OrderedJson::array();
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == std::string::npos || space + 1 == merge.size()) {
      return InvalidArgument("{}: the merge \"{}\" is not two tokens", file.path(), merge);
    }
    merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return OrderedJson{{"type", "BPE"},
                     {"dropout", nullptr},
                     {"unk_token", nullptr},
                     {"continuing_subword_prefix", nullptr},
                     {"end_of_word_suffix", nullptr},
                     {"fuse_unk", false},
                     {"byte_fallback", false},
                     {"ignore_merges", vocabulary.pre == "llama-bpe"},
                     {"vocab", std::move(vocab)},
                     {"merges", std::move(merges)}};
}

// Puts the bos token before every text, as Llama 3's tokenizer does.
OrderedJson BosTemplate(const std::string& bos, int32_t id) {
  const OrderedJson a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const OrderedJson b = {{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const OrderedJson token = {{"SpecialToken", {{"id", bos}, {"type_id", 0}}}};
  OrderedJson special = OrderedJson::object();
  special[bos] = {{"id", bos}, {"ids", {id}}, {"tokens", {bos}}};
  return {{"type", "Sequence"},
          {"processors", OrderedJson::array({ByteLevel(true, false, true),
                                             {{"type", "TemplateProcessing"},
                                              {"single", OrderedJson::array({token, a})},
                                              {"pair", OrderedJson::array({token, a, token, b})},
                                              {"special_tokens", special}}})}};
}

// -1 where the key is absent.
absl::StatusOr<int32_t> SpecialId(const GgufFile& file, const std::string& name, size_t tokens) {
  const std::string key = "tokenizer.ggml." + name + "_token_id";
  if (!file.HasKey(key)) return -1;
  TANDEM_ASSIGN_OR_RETURN(const int64_t id, file.Integer(key));
  if (id < 0 || id >= static_cast<int64_t>(tokens)) {
    return InvalidArgument("{}: {} is {} but there are {} tokens", file.path(), key, id, tokens);
  }
  return static_cast<int32_t>(id);
}

absl::StatusOr<bool> AddsBos(const GgufFile& file, const std::string& pre) {
  const std::string key = "tokenizer.ggml.add_bos_token";
  if (!file.HasKey(key)) return pre == "llama-bpe";  // llama.cpp's default for this tokenizer
  return file.Flag(key);
}

absl::StatusOr<std::string> Dump(const GgufFile& file, const OrderedJson& json, int indent) {
  try {
    return json.dump(indent) + "\n";
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("{}: the tokenizer's text is not UTF-8: {}", file.path(), error.what());
  }
}

absl::StatusOr<std::string> TokenizerConfig(const GgufFile& file,
                                            const Vocabulary& vocabulary,
                                            bool add_bos) {
  OrderedJson config = {{"add_bos_token", add_bos},
                        {"add_prefix_space", false},
                        {"clean_up_tokenization_spaces", false}};
  const std::pair<const char*, const char*> names[] = {{"bos", "bos_token"},
                                                       {"eos", "eos_token"},
                                                       {"padding", "pad_token"},
                                                       {"unknown", "unk_token"}};
  for (const auto& [gguf_name, hf_name] : names) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t id, SpecialId(file, gguf_name, vocabulary.tokens.size()));
    if (id >= 0) config[hf_name] = vocabulary.tokens[static_cast<size_t>(id)];
  }
  if (file.HasKey("tokenizer.chat_template")) {
    TANDEM_ASSIGN_OR_RETURN(const std::string text, file.Text("tokenizer.chat_template"));
    config["chat_template"] = text;
  }
  // The generic class, because model-specific ones rebuild the pre-tokenizer and drop the digit
  // split.
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return Dump(file, config, 2);
}

}  // namespace

absl::StatusOr<GgufTokenizer> ConvertGgufTokenizer(const GgufFile& file) {
  TANDEM_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(file));
  const size_t count = vocabulary.tokens.size();
  TANDEM_ASSIGN_OR_RETURN(OrderedJson pre_tokenizer, PreTokenizer(file, vocabulary.pre));
  TANDEM_ASSIGN_OR_RETURN(OrderedJson model, Model(file, vocabulary));
  TANDEM_ASSIGN_OR_RETURN(bool add_bos, AddsBos(file, vocabulary.pre));
  GgufTokenizer result;
  TANDEM_ASSIGN_OR_RETURN(result.bos_token_id, SpecialId(file, "bos", count));
  TANDEM_ASSIGN_OR_RETURN(result.pad_token_id, SpecialId(file, "padding", count));
  for (const char* name : {"eos", "eot", "eom"}) {
    TANDEM_ASSIGN_OR_RETURN(const int32_t id, SpecialId(file, name, count));
    auto& ids = result.eos_token_ids;
    if (id >= 0 && std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  add_bos = add_bos && result.bos_token_id >= 0;
  OrderedJson normalizer = nullptr;
  if (vocabulary.pre == "qwen2") normalizer = {{"type", "NFC"}};
  OrderedJson post_processor = nullptr;
  if (add_bos) {
    const std::string& bos = vocabulary.tokens[static_cast<size_t>(result.bos_token_id)];
    post_processor = BosTemplate(bos, result.bos_token_id);
  }
  const OrderedJson tokenizer = {{"version", "1.0"},
                                 {"truncation", nullptr},
                                 {"padding", nullptr},
                                 {"added_tokens", AddedTokens(vocabulary)},
                                 {"normalizer", std::move(normalizer)},
                                 {"pre_tokenizer", std::move(pre_tokenizer)},
                                 {"post_processor", std::move(post_processor)},
                                 {"decoder", ByteLevel(true, true, true)},
                                 {"model", std::move(model)}};
  TANDEM_ASSIGN_OR_RETURN(result.tokenizer_json, Dump(file, tokenizer, -1));
  TANDEM_ASSIGN_OR_RETURN(result.tokenizer_config_json, TokenizerConfig(file, vocabulary, add_bos));
  return result;
}

}  // namespace tandem
