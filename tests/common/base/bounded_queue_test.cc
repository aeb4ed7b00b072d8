#include "common/base/bounded_queue.h"

#include <thread>

#include <catch2/catch.hpp>

TEST_CASE("BoundedQueue drains after Close and then reports the end", "[base][bounded_queue]") {
  tandem::BoundedQueue<int> queue(4);
  REQUIRE(queue.Push(1));
  REQUIRE(queue.Push(2));
  queue.Close();
  REQUIRE_FALSE(queue.Push(3));
  REQUIRE(queue.Pop() == 1);
  REQUIRE(queue.Pop() == 2);
  REQUIRE_FALSE(queue.Pop().has_value());
}

TEST_CASE("BoundedQueue refuses TryPush when full and keeps the item", "[base][bounded_queue]") {
  tandem::BoundedQueue<int> queue(1);
  int first = 1, second = 2;
  REQUIRE(queue.TryPush(first));
  REQUIRE_FALSE(queue.TryPush(second));
  REQUIRE(second == 2);
}

TEST_CASE("BoundedQueue hands every item over once between threads", "[base][bounded_queue]") {
  tandem::BoundedQueue<int> queue(3);
  int64_t sum = 0;
  std::thread consumer([&] {
    while (auto item = queue.Pop()) sum += *item;
  });
  for (int i = 1; i <= 1000; ++i) REQUIRE(queue.Push(i));
  queue.Close();
  consumer.join();
  REQUIRE(sum == 500500);
}
