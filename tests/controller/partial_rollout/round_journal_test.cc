#include "controller/partial_rollout/round_journal.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "tests/common/formats/file_size_limit.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

const InterruptionPoints kPoints = {{0x7000000, 3}, {0xffffffffffffffff, 40000}};

struct RoundJournalFixture {
  std::unique_ptr<RoundJournal> Open(const std::string& run = "run 1") const {
    auto journal = RoundJournal::Open(path, run);
    INFO(journal.status().ToString());
    REQUIRE(journal.ok());
    return *std::move(journal);
  }
  std::string Bytes() const { return ReadWholeFile(path).value(); }
  void Write(const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  testing::TempDir dir;
  const std::string path = dir.path() / "partial_journal.jsonl";
};

}  // namespace

TEST_CASE("interruption points are found again, by another process too", "[journal]") {
  const RoundJournalFixture f;
  {
    const auto journal = f.Open();
    REQUIRE(journal->note().empty());
    REQUIRE_FALSE(journal->Find(1, 0, 1));
    REQUIRE(journal->Append(1, 0, 1, kPoints).ok());
    REQUIRE(journal->Append(1, 1, 1, {}).ok());
    REQUIRE(journal->Append(2, 0, 3, {{5, 0}}).ok());
    REQUIRE(journal->Find(1, 0, 1) == kPoints);
  }
  const auto journal = f.Open();
  REQUIRE(journal->note().empty());
  REQUIRE(journal->Find(1, 0, 1) == kPoints);
  // A round that cut nothing is known too, and is not to be cut when it is made again.
  REQUIRE(journal->Find(1, 1, 1) == InterruptionPoints{});
  REQUIRE(journal->Find(2, 0, 3) == InterruptionPoints{{5, 0}});
  REQUIRE_FALSE(journal->Find(2, 0, 2));
  REQUIRE_FALSE(journal->Find(2, 1, 3));
  REQUIRE_FALSE(journal->Find(3, 0, 3));
}

TEST_CASE("a round that is made again with the same interruption points is written once",
          "[journal]") {
  const RoundJournalFixture f;
  const auto journal = f.Open();
  for (int64_t step = 1; step < 4; ++step) REQUIRE(journal->Append(step, 0, step, kPoints).ok());
  const std::string bytes = f.Bytes();
  REQUIRE(journal->Append(1, 0, 1, kPoints).ok());
  REQUIRE(f.Bytes() == bytes);
  REQUIRE(journal->Find(3, 0, 3));
}

TEST_CASE(
    "other interruption points, other weights or a round that was not known begin another history",
    "[journal]") {
  const auto changed = [](int64_t step, int64_t round, int64_t version,
                          const InterruptionPoints& points) {
    const RoundJournalFixture f;
    const auto journal = f.Open();
    for (int64_t s = 1; s < 5; ++s) REQUIRE(journal->Append(2 * s, 0, s, kPoints).ok());
    REQUIRE(journal->Append(step, round, version, points).ok());
    const auto again = f.Open();
    for (const RoundJournal* known : {journal.get(), again.get()}) {
      REQUIRE(known->Find(2, 0, 1) == kPoints);
      REQUIRE(known->Find(step, round, version) == points);
      REQUIRE_FALSE(known->Find(6, 0, 3));
      REQUIRE_FALSE(known->Find(8, 0, 4));
    }
  };
  changed(4, 0, 2, {{1, 2}});
  changed(4, 0, 9, kPoints);
  changed(5, 0, 2, kPoints);
  changed(4, 1, 2, kPoints);
}

TEST_CASE("a line that was being written when the process died is left out, wherever it is cut",
          "[journal]") {
  const RoundJournalFixture f;
  {
    const auto journal = f.Open();
    REQUIRE(journal->Append(1, 0, 1, kPoints).ok());
    REQUIRE(journal->Append(2, 0, 2, kPoints).ok());
  }
  const std::string bytes = f.Bytes();
  const size_t last = bytes.rfind('\n', bytes.size() - 2) + 1;
  for (size_t size = last; size < bytes.size(); size += 11) {
    INFO(size);
    f.Write(bytes.substr(0, size));
    const auto journal = f.Open();
    REQUIRE(journal->note().empty());
    REQUIRE(journal->Find(1, 0, 1) == kPoints);
    REQUIRE_FALSE(journal->Find(2, 0, 2));
    // The next line does not stick to what was left of it.
    REQUIRE(journal->Append(2, 0, 2, {{9, 9}}).ok());
    REQUIRE(f.Open()->Find(2, 0, 2) == InterruptionPoints{{9, 9}});
  }
}

TEST_CASE("a damaged line is told, and with it goes all that follows", "[journal]") {
  const RoundJournalFixture f;
  {
    const auto journal = f.Open();
    for (int64_t step = 1; step < 4; ++step) REQUIRE(journal->Append(step, 0, step, kPoints).ok());
  }
  std::string bytes = f.Bytes();
  const size_t at = bytes.find("40000", bytes.find("\"step\":2"));
  bytes[at] = '5';
  f.Write(bytes);
  const auto journal = f.Open();
  REQUIRE(Has(journal->note(), "line 3 of " + f.path + " is damaged"));
  REQUIRE(journal->Find(1, 0, 1));
  REQUIRE_FALSE(journal->Find(2, 0, 2));
  REQUIRE_FALSE(journal->Find(3, 0, 3));
}

TEST_CASE("a journal of another run is set aside and told", "[journal]") {
  const RoundJournalFixture f;
  REQUIRE(f.Open("run 1")->Append(1, 0, 1, kPoints).ok());
  const auto journal = f.Open("run 2");
  REQUIRE(Has(journal->note(), "belongs to another run"));
  REQUIRE(Has(journal->note(), f.path + ".previous"));
  REQUIRE_FALSE(journal->Find(1, 0, 1));
  REQUIRE(std::filesystem::exists(f.path + ".previous"));
  REQUIRE(f.Open("run 2")->note().empty());
  for (const char* other : {"", "not a journal\n", "{}\n", "[]\n{\"step\":1}\n"}) {
    INFO(other);
    f.Write(other);
    REQUIRE(Has(f.Open("run 2")->note(), "belongs to another run"));
  }
}

TEST_CASE("what does not fit is forgotten from there on, and old steps are pruned", "[journal]") {
  const RoundJournalFixture f;
  const auto journal = f.Open();
  for (int64_t step = 1; step < 6; ++step) {
    REQUIRE(journal->Append(step, 0, step, kPoints).ok());
    REQUIRE(journal->Append(step, 1, step, kPoints).ok());
  }
  journal->ForgetFrom(4, 1);
  REQUIRE(journal->Prune(2).ok());
  const auto again = f.Open();
  for (const RoundJournal* known : {journal.get(), again.get()}) {
    REQUIRE_FALSE(known->Find(2, 1, 2));
    REQUIRE(known->Find(3, 0, 3));
    REQUIRE(known->Find(4, 0, 4));
    REQUIRE_FALSE(known->Find(4, 1, 4));
    REQUIRE_FALSE(known->Find(5, 0, 5));
  }
  REQUIRE(journal->Append(4, 1, 4, {}).ok());
  REQUIRE(journal->Find(4, 1, 4) == InterruptionPoints{});
  REQUIRE(journal->Clear().ok());
  REQUIRE_FALSE(f.Open()->Find(3, 0, 3));
}

TEST_CASE("a round that was forgotten and is made again overrules the lines behind it",
          "[journal]") {
  const RoundJournalFixture f;
  const auto journal = f.Open();
  for (int64_t step = 1; step < 4; ++step) REQUIRE(journal->Append(step, 0, step, kPoints).ok());
  journal->ForgetFrom(2, 0);
  REQUIRE(journal->Append(2, 0, 2, kPoints).ok());
  const auto again = f.Open();
  for (const RoundJournal* known : {journal.get(), again.get()}) {
    REQUIRE(known->Find(1, 0, 1) == kPoints);
    REQUIRE(known->Find(2, 0, 2) == kPoints);
    REQUIRE_FALSE(known->Find(3, 0, 3));
  }
}

TEST_CASE("a run that begins anew leaves an earlier one's journal alone until it is cleared",
          "[journal]") {
  const RoundJournalFixture f;
  REQUIRE(f.Open()->Append(1, 0, 1, kPoints).ok());
  const std::string before = ReadWholeFile(f.path).value();
  const auto journal = RoundJournal::OpenUnread(f.path, "of other settings");
  REQUIRE_FALSE(journal->Find(1, 0, 1));
  REQUIRE(journal->note().empty());
  REQUIRE(ReadWholeFile(f.path).value() == before);
  // What was there is moved away meanwhile.
  std::filesystem::rename(f.path, f.path + ".moved");
  REQUIRE(journal->Clear().ok());
  REQUIRE(journal->Append(1, 0, 1, {}).ok());
  REQUIRE(ReadWholeFile(f.path + ".moved").value() == before);
  REQUIRE(RoundJournal::Open(f.path, "of other settings").value()->Find(1, 0, 1) ==
          InterruptionPoints{});
}

TEST_CASE("a full disk is told, and what was there stays readable", "[journal]") {
  const RoundJournalFixture f;
  const auto journal = f.Open();
  REQUIRE(journal->Append(1, 0, 1, kPoints).ok());
  InterruptionPoints many;
  for (uint64_t id = 0; id < 1000; ++id) many[id] = 7;
  {
    const testing::FileSizeLimit limit(1000);
    const absl::Status appended = journal->Append(2, 0, 2, many);
    REQUIRE(absl::IsResourceExhausted(appended));
    REQUIRE(Has(std::string(appended.message()), f.path));
    REQUIRE_FALSE(journal->Find(2, 0, 2));
  }
  REQUIRE(journal->Append(2, 0, 2, {{1, 1}}).ok());
  const auto again = f.Open();
  REQUIRE(again->note().empty());
  REQUIRE(again->Find(1, 0, 1) == kPoints);
  REQUIRE(again->Find(2, 0, 2) == InterruptionPoints{{1, 1}});
}

}  // namespace tandem
