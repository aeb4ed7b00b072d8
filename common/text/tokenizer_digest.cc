#include "common/text/tokenizer_digest.h"

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "common/text/tokenizer_json.h"

namespace tandem {
namespace {

class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

  // Every field is written with its length, so that no two lists of fields look alike.
  void Add(const std::string& field) {
    Add(static_cast<int64_t>(field.size()));
    XXH3_128bits_update(state_.get(), field.data(), field.size());
  }
  void Add(int64_t number) { XXH3_128bits_update(state_.get(), &number, sizeof(number)); }

  std::string Hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
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
