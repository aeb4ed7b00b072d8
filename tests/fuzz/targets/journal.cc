// The journal of partial rollout and the saved rollout buffer. Both carry digests, which this makes
// right, so that what lies behind them is read: the journal's lines are sealed, and the buffer's
// lines (up to a NUL) and token file (behind it) fit each other.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include "common/types/xxh3.h"
#include "controller/partial_rollout/buffer/saved_buffer.h"
#include "controller/partial_rollout/round_journal.h"
#include "tests/fuzz/scratch_dir.h"
#include "tests/fuzz/target.h"

namespace tandem::fuzz {
namespace {

using JournalJson = nlohmann::ordered_json;

std::vector<std::string> JournalLines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string SealedLine(const std::string& line) {
  if (line.size() < 2 || line.back() != '}') return line + "\n";
  return fmt::format("{},\"xxh3\":\"{:016x}\"}}\n", line.substr(0, line.size() - 1),
                     XXH3_64bits(line.data(), line.size()));
}

std::string HexOf(std::string_view bytes) { return HashXxh3(bytes.data(), bytes.size()).Hex(); }

void ReadJournal(const ScratchDir& dir, std::string_view text) {
  std::string sealed = SealedLine(R"({"format":1,"journal":"partial rollout cuts","run":"fuzz"})");
  for (const std::string& line : JournalLines(text)) sealed += SealedLine(line);
  dir.Write("journal.jsonl", sealed);
  const auto journal = RoundJournal::Open(dir.path() + "/journal.jsonl", "fuzz");
  if (!journal.ok()) return;
  (void)(*journal)->Append(1, 0, 1, {{7, 3}});
  if (!(*journal)->Find(1, 0, 1)) __builtin_trap();
}

void ReadBuffer(const ScratchDir& dir, std::string_view text, std::string_view tokens) {
  std::string lines;
  for (const std::string& line : JournalLines(text)) {
    JournalJson header;
    if (lines.empty() && line.size() < 4096) header = JournalJson::parse(line, nullptr, false);
    if (!header.is_object()) {
      lines += line + "\n";
      continue;
    }
    header["tokens"] = {{"bytes", tokens.size()}, {"xxh3", HexOf(tokens)}};
    lines += header.dump(-1, ' ', false, JournalJson::error_handler_t::replace) + "\n";
  }
  lines += fmt::format("{{\"xxh3\":\"{}\"}}\n", HexOf(lines));
  dir.Write("partial_pool/pool.jsonl", lines);
  dir.Write("partial_pool/tokens.bin", tokens);
  const auto buffer = ReadSavedBuffer(dir.path());
  if (!buffer.ok() || !*buffer) return;
  for (const auto& [number, group] : (*buffer)->groups) {
    for (const BufferedSample& sample : group.samples) (void)(*buffer)->Read(sample);
  }
}

}  // namespace
}  // namespace tandem::fuzz

TANDEM_FUZZ_TARGET(journal) {
  static const tandem::fuzz::ScratchDir dir;
  dir.Clear();
  const size_t split = std::min(input.find('\0'), input.size());
  tandem::fuzz::ReadJournal(dir, input.substr(0, split));
  tandem::fuzz::ReadBuffer(dir, input.substr(0, split),
                           input.substr(std::min(split + 1, input.size())));
}
