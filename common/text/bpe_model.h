// Byte-pair encoding of one pre-token (Sennrich et al. 2016): the pair of lowest rank is merged
// first, and of equal pairs the leftmost.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "common/text/string_map.h"

namespace tandem {

struct BpeSpec {
  StringMap<int32_t> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::optional<std::string> unk_token;
  bool byte_level = false;     // words are raw bytes, tokens are written in the byte alphabet
  bool ignore_merges = false;  // a word that is itself a token is not split
  bool byte_fallback = false;  // an unknown character becomes its <0xHH> tokens
  bool fuse_unk = false;       // neighbouring unknown characters become one unk_token
};

// Thread-safe: const methods share a bounded cache of words.
class BpeModel {
 public:
  // InvalidArgument: a merge names a token outside the vocabulary, or unk_token is unknown.
  static absl::StatusOr<std::unique_ptr<BpeModel>> Create(const BpeSpec& spec);
  ~BpeModel();

  // Appends the ids of one pre-token. Characters that have no token, byte fallback or unk_token are
  // dropped, as in the reference implementation of the format.
  void EncodeWord(std::string_view word, std::vector<int32_t>& out) const;

 private:
  struct Cache;
  struct Merge {
    int32_t rank, id;
  };
  struct Symbol {
    int32_t id, previous, next;
    bool alive;
  };

  BpeModel();
  absl::Status AddMerges(const BpeSpec& spec);
  std::vector<Symbol> InitialSymbols(std::string_view word) const;
  void MergeSymbols(std::vector<Symbol>& symbols) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;

  StringMap<int32_t> tokens_;          // by raw bytes when byte_level
  std::array<int32_t, 256> byte_ids_;  // byte_level: the symbol of a byte; else of <0xHH>; or -1
  std::unordered_map<uint64_t, Merge> merges_;
  int32_t unk_id_ = -1;
  bool byte_level_ = false, ignore_merges_ = false, byte_fallback_ = false, fuse_unk_ = false;
  std::unique_ptr<Cache> cache_;
};

// The byte alphabet of byte-level BPE: every byte is one printable character, so that tokens can be
// written in JSON. Printable Latin-1 bytes are themselves, the others start at U+0100.

// The character of a byte, as UTF-8.
const std::string& ByteLevelCharacter(uint8_t byte);

// nullopt if a character is not in the alphabet.
std::optional<std::string> FromByteLevel(std::string_view text);

// The value of a byte-fallback token `<0xHH>`, else nullopt.
std::optional<uint8_t> ParseByteToken(std::string_view token);

}  // namespace tandem
