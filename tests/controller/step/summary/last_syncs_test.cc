#include "controller/step/summary/last_syncs.h"

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("What a rollout was sent last replaces what it was sent before", "[last_syncs]") {
  LastSyncs syncs;
  REQUIRE(syncs.Newest().empty());
  syncs.Note({{.version = 0, .rank = 1}, {.version = 1, .rank = 1}, {.version = 0, .rank = 2}});
  syncs.Note({});
  REQUIRE(syncs.Newest().size() == 2);
  REQUIRE(syncs.Newest().at(1).version == 1);
  syncs.Note({{.version = 2, .rank = 2}});
  REQUIRE(syncs.Newest().at(2).version == 2);
  REQUIRE(syncs.Newest().at(1).version == 1);
}

}  // namespace tandem
