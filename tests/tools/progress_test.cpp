// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../tools/support/progress.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include <catch2/catch.hpp>

using namespace collx::tools;

namespace {
std::string readable(int fd) {
    std::string out;
    char buffer[1024];
    for (int i = 0; i < 100; ++i) {
        pollfd p{fd, POLLIN, 0};
        if (poll(&p, 1, 20) != 1) break;
        const auto n = read(fd, buffer, sizeof buffer);
        if (n <= 0) break;
        out.append(buffer, static_cast<std::size_t>(n));
    }
    return out;
}
} // namespace

TEST_CASE("the text says how far, at what, and how long") {
    CHECK(progress_text(0, 4, 0, "ring 8 B", 80) == "  0 %  ring 8 B");
    CHECK(progress_text(1, 4, 5e9, "ring", 80) == " 25 %  ring  15 s left");
    CHECK(progress_text(3, 4, 1e9, "ring", 80) == " 75 %  ring  less than 1 s left");
    CHECK(progress_text(4, 4, 1e9, "done", 80) == "100 %  done");
    CHECK(progress_text(0, 0, 0, "", 80) == "100 %  ");
    CHECK(progress_text(9, 4, 0, "x", 80) == "100 %  x");
    CHECK(progress_text(1, 4, 5e9, "ring", 10) == " 25 %  rin");
}

TEST_CASE("a terminal gets a line that is taken away again; a pipe and a dumb terminal get nothing") {
    int master = -1, slave = -1, ends[2];
    REQUIRE(openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
    REQUIRE(pipe2(ends, O_NONBLOCK) == 0);
    setenv("TERM", "xterm", 1);
    {
        progress_line line(10, true, slave), in_pipe(10, true, ends[1]), unwanted(10, false, slave);
        for (auto* l : {&line, &in_pipe, &unwanted}) l->update(5, "half way");
    }
    const auto seen = readable(master);
    CHECK(seen.find("\r\033[K 50 %  half way") == 0);
    CHECK(seen.rfind("\r\033[K") == seen.size() - 4);
    CHECK(seen.find("half way") == seen.rfind("half way"));
    CHECK(readable(ends[0]).empty());
    setenv("TERM", "dumb", 1);
    { progress_line(10, true, slave).update(5, "half way"); }
    CHECK(readable(master).empty());
    for (const int fd : {master, slave, ends[0], ends[1]}) close(fd);
}

TEST_CASE("many updates in a short time are one drawing") {
    int master = -1, slave = -1;
    REQUIRE(openpty(&master, &slave, nullptr, nullptr, nullptr) == 0);
    setenv("TERM", "xterm", 1);
    progress_line line(1000, true, slave);
    for (int i = 0; i < 100; ++i) line.update(1, "item");
    const auto seen = readable(master);
    CHECK(seen.find("item") != std::string::npos);
    CHECK(seen.size() < 200); // redrawing each time would take thousands; a slow machine may draw a few times
    close(master);
    close(slave);
}
