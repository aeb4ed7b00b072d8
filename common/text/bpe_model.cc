#include "common/text/bpe_model.h"

#include <array>
#include <queue>
#include <tuple>

#include "common/base/mutex.h"
#include "common/base/status.h"
#include "common/text/unicode/utf8.h"

namespace tandem {

// Shards reduce contention between threads; a full shard stops growing.
struct BpeModel::Cache {
  static constexpr size_t kShards = 16, kWordsPerShard = 8192, kLongestWord = 64;
  struct Shard {
    Mutex words_mutex;
    StringMap<std::vector<int32_t>> words ABSL_GUARDED_BY(words_mutex);
  };
  std::array<Shard, kShards> shards;

  Shard& Of(std::string_view word) { return shards[StringViewHash()(word) % kShards]; }

  bool Lookup(std::string_view word, std::vector<int32_t>& out) {
    Shard& shard = Of(word);
    const MutexLock lock(shard.words_mutex);
    const auto it = shard.words.find(word);
    if (it == shard.words.end()) return false;
    out.insert(out.end(), it->second.begin(), it->second.end());
    return true;
  }

  void Insert(std::string_view word, const int32_t* begin, const int32_t* end) {
    if (word.size() > kLongestWord) return;
    Shard& shard = Of(word);
    const MutexLock lock(shard.words_mutex);
    if (shard.words.size() < kWordsPerShard) {
      shard.words.emplace(std::string(word), std::vector<int32_t>(begin, end));
    }
  }
};

BpeModel::BpeModel() : cache_(std::make_unique<Cache>()) { byte_ids_.fill(-1); }
BpeModel::~BpeModel() = default;

absl::StatusOr<std::unique_ptr<BpeModel>> BpeModel::Create(const BpeSpec& spec) {
  std::unique_ptr<BpeModel> model(new BpeModel);
  model->byte_level_ = spec.byte_level;
  model->ignore_merges_ = spec.ignore_merges;
  model->byte_fallback_ = spec.byte_fallback;
  model->fuse_unk_ = spec.fuse_unk;
  if (spec.unk_token) {
    const auto unk = spec.vocab.find(*spec.unk_token);
    if (unk == spec.vocab.end()) {
      return InvalidArgument("unk_token '{}' is not in the vocabulary", *spec.unk_token);
    }
    model->unk_id_ = unk->second;
  }
  for (const auto& [token, id] : spec.vocab) {
    if (!spec.byte_level) {
      model->tokens_.emplace(token, id);
      if (const auto byte = ParseByteToken(token)) model->byte_ids_[*byte] = id;
    } else if (auto bytes = FromByteLevel(token)) {
      if (bytes->size() == 1) model->byte_ids_[static_cast<uint8_t>((*bytes)[0])] = id;
      model->tokens_.emplace(std::move(*bytes), id);
    }
  }
  TANDEM_RETURN_IF_ERROR(model->AddMerges(spec));
  return model;
}

absl::Status BpeModel::AddMerges(const BpeSpec& spec) {
  merges_.reserve(spec.merges.size());
  for (size_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    int32_t ids[3];
    const std::string parts[3] = {left, right, left + right};
    for (int i = 0; i < 3; ++i) {
      const auto it = spec.vocab.find(parts[i]);
      if (it == spec.vocab.end()) {
        return InvalidArgument(
            "merge {} ('{}' + '{}') needs the token '{}', which is not in the "
            "vocabulary",
            rank, left, right, parts[i]);
      }
      ids[i] = it->second;
    }
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(ids[0])} << 32) | static_cast<uint32_t>(ids[1]);
    // A pair listed twice has the later rank, as in the reference implementation's map.
    merges_[key] = Merge{static_cast<int32_t>(rank), ids[2]};
  }
  return absl::OkStatus();
}

const BpeModel::Merge* BpeModel::FindMerge(int32_t left, int32_t right) const {
  const auto it =
      merges_.find((uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right));
  return it == merges_.end() ? nullptr : &it->second;
}

std::vector<BpeModel::Symbol> BpeModel::InitialSymbols(std::string_view word) const {
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  const auto add = [&symbols](int32_t id) { symbols.push_back({id, 0, 0, true}); };
  bool last_unknown = false;
  for (size_t pos = 0; pos < word.size();) {
    const size_t start = pos;
    if (byte_level_) {
      ++pos;
    } else {
      NextCodePoint(word, pos);
    }
    const std::string_view piece = word.substr(start, pos - start);
    int32_t id = -1;
    if (byte_level_) {
      id = byte_ids_[static_cast<uint8_t>(piece[0])];
    } else if (const auto it = tokens_.find(piece); it != tokens_.end()) {
      id = it->second;
    }
    bool fallback = id < 0 && byte_fallback_ && !byte_level_;
    for (char c : piece) fallback = fallback && byte_ids_[static_cast<uint8_t>(c)] >= 0;
    if (id >= 0) {
      add(id);
    } else if (fallback) {
      for (char c : piece) add(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (unk_id_ >= 0 && !(fuse_unk_ && last_unknown)) {
      add(unk_id_);
    }
    last_unknown = id < 0 && !fallback;
  }
  for (size_t i = 0; i < symbols.size(); ++i) {
    symbols[i].previous = static_cast<int32_t>(i) - 1;
    symbols[i].next = i + 1 < symbols.size() ? static_cast<int32_t>(i) + 1 : -1;
  }
  return symbols;
}

void BpeModel::MergeSymbols(std::vector<Symbol>& symbols) const {
  using Candidate = std::tuple<int32_t, int32_t, int32_t>;  // rank, left symbol, merged id
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Merge* merge = FindMerge(symbols[left].id, symbols[symbols[left].next].id);
    if (merge != nullptr) queue.emplace(merge->rank, left, merge->id);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) offer(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const auto [rank, left, id] = queue.top();
    queue.pop();
    Symbol& symbol = symbols[left];
    if (!symbol.alive || symbol.next < 0) continue;
    Symbol& right = symbols[symbol.next];
    const Merge* merge = FindMerge(symbol.id, right.id);
    if (merge == nullptr || merge->id != id) continue;  // a neighbour changed since
    symbol.id = id;
    symbol.next = right.next;
    right.alive = false;
    if (symbol.next >= 0) symbols[symbol.next].previous = left;
    offer(symbol.previous);
    offer(left);
  }
}

void BpeModel::EncodeWord(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    if (const auto it = tokens_.find(word); it != tokens_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  if (cache_->Lookup(word, out)) return;
  std::vector<Symbol> symbols = InitialSymbols(word);
  MergeSymbols(symbols);
  const size_t start = out.size();
  for (const Symbol& symbol : symbols) {
    if (symbol.alive) out.push_back(symbol.id);
  }
  cache_->Insert(word, out.data() + start, out.data() + out.size());
}

namespace {

constexpr size_t kAlphabetEnd = 0x144;  // 256 + the 68 bytes that do not stand for themselves

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, kAlphabetEnd> bytes;

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t character = itself ? static_cast<char32_t>(b) : next++;
      AppendUtf8(character, characters[b]);
      bytes[character] = b;
    }
  }
};

const Alphabet& GetAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

const std::string& ByteLevelCharacter(uint8_t byte) { return GetAlphabet().characters[byte]; }

std::optional<std::string> FromByteLevel(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, pos);
    const int byte = c < kAlphabetEnd ? GetAlphabet().bytes[c] : -1;
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
  }
  return out;
}

std::optional<uint8_t> ParseByteToken(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  int value = 0;
  for (char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<uint8_t>(value);
}

}  // namespace tandem
