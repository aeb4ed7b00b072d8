#include "common/text/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "common/base/json_integer.h"
#include "common/base/json_nesting.h"
#include "common/base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kRemedy[] =
    "use a checkpoint with a byte-level BPE tokenizer.json, or save the tokenizer again in that "
    "format";

// null when absent.
const Json& Part(const Json& root, const char* key) {
  static const Json kNull;
  const auto it = root.find(key);
  return it == root.end() ? kNull : *it;
}

absl::Status CheckModelOptions(const Json& model) {
  const std::string type = model.value("type", std::string(model.contains("merges") ? "BPE" : "?"));
  if (type != "BPE") {
    return InvalidArgument("model type '{}' is not supported, only BPE is; {}", type, kRemedy);
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = Part(model, key);
    if (value.is_string() && !value.get<std::string>().empty()) {
      return InvalidArgument("BPE option {} = {} is not supported; {}", key, value.dump(), kRemedy);
    }
  }
  const Json& dropout = Part(model, "dropout");
  if (dropout.is_number() && dropout.get<double>() != 0) {
    return InvalidArgument(
        "BPE dropout {} is not supported: ids must not be random; set it to null", dropout.dump());
  }
  const Json& vocab = Part(model, "vocab");
  if (!vocab.is_object() || vocab.empty()) {
    return InvalidArgument("has no vocabulary (model.vocab); {}", kRemedy);
  }
  const Json& merges = Part(model, "merges");
  if (!merges.is_array() || merges.empty()) {
    return InvalidArgument("has no merges (model.merges), so text cannot be encoded; {}", kRemedy);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<std::string, std::string>> ParseMerge(const Json& merge, size_t rank) {
  if (merge.is_array() && merge.size() == 2) {
    return std::pair<std::string, std::string>(merge[0].get_ref<const std::string&>(),
                                               merge[1].get_ref<const std::string&>());
  }
  if (merge.is_string()) {
    const std::string& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos) {
      return std::pair(text.substr(0, space), text.substr(space + 1));
    }
  }
  return InvalidArgument("merge {} is {}, not two tokens; {}", rank, merge.dump(), kRemedy);
}

absl::StatusOr<BpeSpec> ParseModel(const Json& model) {
  TANDEM_RETURN_IF_ERROR(CheckModelOptions(model));
  BpeSpec spec;
  spec.ignore_merges = model.value("ignore_merges", false);
  spec.byte_fallback = model.value("byte_fallback", false);
  spec.fuse_unk = model.value("fuse_unk", false);
  if (const Json& unk = Part(model, "unk_token"); unk.is_string())
    spec.unk_token = unk.get<std::string>();
  const Json& vocab = model.at("vocab");
  spec.vocab.reserve(vocab.size());
  for (auto it = vocab.begin(); it != vocab.end(); ++it) {
    spec.vocab.emplace(it.key(), IntegerOf<int32_t>(*it));
  }
  const Json& merges = model.at("merges");
  spec.merges.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    TANDEM_ASSIGN_OR_RETURN(auto merge, ParseMerge(merges[rank], rank));
    spec.merges.push_back(std::move(merge));
  }
  return spec;
}

std::vector<AddedToken> ParseAddedTokens(const Json& list) {
  std::vector<AddedToken> tokens;
  if (list.is_null()) return tokens;
  for (const Json& item : list) {
    AddedToken token;
    token.id = IntegerOf<int32_t>(item.at("id"));
    token.content = item.at("content").get<std::string>();
    token.special = item.value("special", false);
    token.single_word = item.value("single_word", false);
    token.lstrip = item.value("lstrip", false);
    token.rstrip = item.value("rstrip", false);
    token.normalized = item.value("normalized", !token.special);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Every id has one token. An upper bound limits the memory that a corrupt id can request: there is
// a place for each id up to the largest, and published vocabularies have few holes.
absl::Status CheckIds(const TokenizerSpec& spec) {
  constexpr size_t kHoles = 1 << 16, kHolesPerToken = 16;
  const size_t tokens = spec.model.vocab.size() + spec.added_tokens.size();
  const auto max_id = static_cast<int32_t>(
      std::min<size_t>(tokens * (kHolesPerToken + 1) + kHoles, size_t{1} << 24));
  std::unordered_map<int32_t, const std::string*> owners;
  owners.reserve(spec.model.vocab.size());
  const auto claim = [&owners, max_id](int32_t id, const std::string& token) -> absl::Status {
    if (id < 0 || id > max_id)
      return InvalidArgument("token '{}' has the impossible id {}", token, id);
    const auto [it, fresh] = owners.emplace(id, &token);
    if (!fresh && *it->second != token) {
      return InvalidArgument("id {} belongs to '{}' and to '{}'; {}", id, *it->second, token,
                             kRemedy);
    }
    return absl::OkStatus();
  };
  for (const auto& [token, id] : spec.model.vocab) TANDEM_RETURN_IF_ERROR(claim(id, token));
  for (const AddedToken& token : spec.added_tokens) {
    const auto it = spec.model.vocab.find(token.content);
    if (it != spec.model.vocab.end() && it->second != token.id) {
      return InvalidArgument("added token '{}' has id {}, but {} in the vocabulary; {}",
                             token.content, token.id, it->second, kRemedy);
    }
    TANDEM_RETURN_IF_ERROR(claim(token.id, token.content));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenizerSpec> ParseRoot(const Json& root) {
  if (!root.is_object() || !root.contains("model")) {
    return InvalidArgument("has no model; {}", kRemedy);
  }
  TokenizerSpec spec;
  TANDEM_ASSIGN_OR_RETURN(spec.model, ParseModel(root.at("model")));
  spec.added_tokens = ParseAddedTokens(Part(root, "added_tokens"));
  spec.normalizer = Part(root, "normalizer");
  spec.pre_tokenizer = Part(root, "pre_tokenizer");
  spec.post_processor = Part(root, "post_processor");
  spec.decoder = Part(root, "decoder");
  TANDEM_RETURN_IF_ERROR(CheckIds(spec));
  return spec;
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(const std::string& text, const std::string& name) {
  TANDEM_RETURN_IF_ERROR(Annotate(CheckJsonNesting(text), name));
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    return InvalidArgument("{}: is not valid JSON ({} bytes); fetch the file again", name,
                           text.size());
  }
  try {
    absl::StatusOr<TokenizerSpec> spec = ParseRoot(root);
    if (!spec.ok()) return Annotate(spec.status(), name);
    return spec;
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: not in the format of a tokenizer.json ({}); {}", name, error.what(),
                           kRemedy);
  }
}

}  // namespace tandem
