// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// hwloc's XML, written by hand from the descriptions of its versions 2 and 3: the resulting machine, and what is
// refused with a line and a remedy.
#include <collx/topo/hwloc_topology.hpp>
#include <collx/topo/path.hpp>

#include <catch2/catch.hpp>

using namespace collx;
using namespace collx::topo;
using Catch::Contains;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
}

// Two NUMA nodes; the second has a PCIe switch with two A100, an NVSwitch and a card, and a card beside it.
const std::string machine = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" nodeset="0x00000003" gp_index="1">
    <info name="Backend" value="Linux"/>
    <object type="Package" os_index="0" nodeset="0x00000001" gp_index="2">
      <object type="NUMANode" os_index="0" nodeset="0x00000001" gp_index="3" local_memory="1"><page_type size="4096" count="1"/></object>
    </object>
    <object type="Package" os_index="1" nodeset="0x00000002" gp_index="4">
      <object type="NUMANode" os_index="1" nodeset="0x00000002" gp_index="5" local_memory="1"/>
      <object type="L3Cache" nodeset="0x00000002"><object type="Core"><object type="PU" os_index="0"/></object></object>
      <object type="Bridge" gp_index="20" bridge_type="0-1" bridge_pci="0000:[00-0f]">
        <object type="Bridge" gp_index="21" bridge_type="1-1" bridge_pci="0000:[01-06]" pci_busid="0000:00:01.0" pci_type="0604 [8086:1] [0:0] 00" pci_link_speed="31.507692">
          <object type="Bridge" gp_index="22" bridge_type="1-1" bridge_pci="0000:[02-06]" pci_busid="0000:01:00.0" pci_type="0604 [1000:1] [0:0] 00" pci_link_speed="31.507692">
            <object type="Bridge" gp_index="23" bridge_type="1-1" bridge_pci="0000:[03-03]" pci_busid="0000:02:00.0" pci_type="0604 [1000:1] [0:0] 00" pci_link_speed="31.507692">
              <object type="PCIDev" gp_index="30" pci_busid="0000:03:00.0" pci_type="0302 [10de:20b0] [10de:144e] a1" pci_link_speed="31.507692">
                <object type="OSDev" gp_index="31" name="nvml0" osdev_type="1"/><object type="OSDev" gp_index="32" name="cuda0" osdev_type="5"/>
              </object>
            </object>
            <object type="Bridge" gp_index="24" bridge_type="1-1" bridge_pci="0000:[04-04]" pci_busid="0000:02:01.0" pci_type="0604 [1000:1] [0:0] 00" pci_link_speed="31.507692">
              <object type="PCIDev" gp_index="33" pci_busid="0000:04:00.0" pci_type="0302 [10de:20b0] [10de:144e] a1" pci_link_speed="15.75">
                <object type="OSDev" gp_index="34" name="nvml1" osdev_type="1"/>
              </object>
            </object>
            <object type="Bridge" gp_index="25" bridge_type="1-1" bridge_pci="0000:[05-05]" pci_busid="0000:02:02.0" pci_type="0604 [1000:1] [0:0] 00" pci_link_speed="31.507692">
              <object type="PCIDev" gp_index="35" pci_busid="0000:05:00.0" pci_type="0207 [15b3:101b] [15b3:6] 00" pci_link_speed="31.507692">
                <object type="OSDev" gp_index="36" name="ib0" osdev_type="2"/><object type="OSDev" gp_index="37" name="mlx5_0" osdev_type="3"/>
              </object>
            </object>
            <object type="Bridge" gp_index="26" bridge_type="1-1" bridge_pci="0000:[06-06]" pci_busid="0000:02:03.0" pci_type="0604 [1000:1] [0:0] 00" pci_link_speed="0">
              <object type="PCIDev" gp_index="38" pci_busid="0000:06:00.0" pci_type="0680 [10de:1af1] [10de:1] a1" pci_link_speed="0"/>
            </object>
          </object>
        </object>
        <object type="PCIDev" gp_index="39" pci_busid="0000:00:02.0" pci_type="0200 [8086:1] [0:0] 00" pci_link_speed="0">
          <object type="OSDev" gp_index="40" name="eth0" osdev_type="2"/>
        </object>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="12">10 40 40 10 </u64values>
  </distances2>
  <distances2hetero nbobjs="3" kind="9" name="NVLinkBandwidth" indexing="gp">
    <indexes length="25">OSDev:31 OSDev:34 PCIDev:38 </indexes>
    <u64values length="40">1000000 50000 300000 50000 1000000 300000
      300000 300000 1000000 </u64values>
  </distances2hetero>
</topology>
)";

} // namespace

TEST_CASE("an export of hwloc becomes a machine") {
    const graph g = read_hwloc_topology(machine, "m.xml");
    CHECK(g.all(site_type::cpu).size() == 2);
    CHECK(g.all(site_type::gpu).size() == 2);
    CHECK(g.all(site_type::nic).size() == 2);
    CHECK(g.all(site_type::pcie_switch) == std::vector<int>{g.require("PCI 0000:01:00.0")});
    const int a = g.require("GPU0"), b = g.require("GPU1"), card = g.require("mlx5_0"); // RDMA's name, not ib0
    CHECK(g.at(a).numa == 1);
    const auto rate = [&](int from, int to, link_type type) {
        for (const int i : g.arcs_of(from))
            if (g.arc_at(i).to == to && g.arc_at(i).type == type) return g.arc_at(i).bytes_per_s / 1e9;
        return 0.0;
    };
    CHECK(rate(a, g.require("PCI 0000:01:00.0"), link_type::pcie) == Approx(31.507692));
    CHECK(rate(b, g.require("PCI 0000:01:00.0"), link_type::pcie) == Approx(15.75));     // the slower end's
    CHECK(rate(g.require("eth0"), g.require("CPU1"), link_type::pcie) == Approx(15.75)); // unknown: x16 of PCIe 3
    CHECK(rate(g.require("CPU0"), g.require("CPU1"), link_type::socket) == Approx(20));  // half of 40 at distance 40
    CHECK(rate(a, b, link_type::nvlink) == 50);
    CHECK(rate(a, g.require("NVSwitch"), link_type::nvlink) == 300);
    CHECK(rate(b, g.require("NVSwitch"), link_type::nvlink) == 300);
    CHECK(find_path(g, a, card).type == path_class::pix);
    CHECK(find_path(g, a, g.require("eth0")).type == path_class::phb);
}

TEST_CASE("NVLinks to a package lead to its CPU") {
    const std::string power = replaced(machine, "OSDev:31 OSDev:34 PCIDev:38", "OSDev:31 OSDev:34 Package:4");
    for (const std::string& text :
         {power, replaced(power, "OSDev:31 OSDev:34 Package:4", "Package:4 OSDev:31 OSDev:34")}) {
        const graph g = read_hwloc_topology(text);
        CHECK(g.find("NVSwitch") < 0);
        int links = 0;
        for (const int i : g.arcs_of(g.require("CPU1")))
            links += g.arc_at(i).type == link_type::nvlink && g.at(g.arc_at(i).to).type == site_type::gpu;
        CHECK(links == 2);
    }
    CHECK(read_hwloc_topology(replaced(machine, "PCIDev:38", "Package:2")).arcs_of(0).size() >
          read_hwloc_topology(machine).arcs_of(0).size()); // CPU0, above which no GPU is
}

TEST_CASE("version 3 has bits for the kinds of devices, and one type of distances") {
    std::string three = replaced(machine, "version=\"2.0\"", "version=\"3.0\"");
    three = replaced(three, "name=\"ib0\" osdev_type=\"2\"", "name=\"ib0\" osdev_type=\"16\"");
    three = replaced(three, "name=\"mlx5_0\" osdev_type=\"3\"", "name=\"mlx5_0\" osdev_type=\"32\"");
    three = replaced(three, "name=\"eth0\" osdev_type=\"2\"", "name=\"pmem0\" osdev_type=\"2\""); // not a card
    const graph g = read_hwloc_topology(three);
    CHECK(g.find("mlx5_0") >= 0);
    CHECK(g.all(site_type::nic).size() == 1);
    // Nodes without devices, and a set of several words.
    const graph far = read_hwloc_topology(replaced(
        replaced(machine, "os_index=\"1\" nodeset=\"0x00000002\" gp_index=\"5\"", "os_index=\"33\" gp_index=\"5\""),
        "os_index=\"1\" nodeset=\"0x00000002\" gp_index=\"4\"", "os_index=\"1\" nodeset=\"0x00000002,0x00000000\""));
    CHECK(far.at(far.require("GPU0")).numa == 33);
}

TEST_CASE("interfaces of any name, and as many nodes as are linked in no time") {
    const graph g = read_hwloc_topology(
        replaced(replaced(machine, "name=\"eth0\"", "name=\"GPU0\""), "name=\"mlx5_0\"", "name=\"NVSwitch\""));
    CHECK(g.at(g.require("GPU0")).type == site_type::gpu);
    CHECK(g.at(g.require("NVSwitch")).type == site_type::nvswitch);
    CHECK(g.at(g.require("NIC GPU0")).type == site_type::nic);
    std::string many = "<topology version=\"2.0\"><object type=\"Machine\">";
    for (int node = 0; node < 256; ++node)
        many += "<object type=\"NUMANode\" os_index=\"" + std::to_string(node) + "\"/>";
    CHECK(read_hwloc_topology(many + "</object></topology>").size() == 256);
    CHECK_THROWS_WITH(
        read_hwloc_topology(many + "\n<object type=\"NUMANode\" os_index=\"256\"/></object></topology>", "m.xml"),
        Contains("m.xml:2:") && Contains("more than 256 NUMANodes"));
}

TEST_CASE("what is wrong in an export of hwloc is named with its line and the remedy") {
    const auto refused = [](const std::string& text) {
        try {
            read_hwloc_topology(text, "m.xml");
        } catch (const error& e) {
            CHECK(e.code() == errc::invalid_argument);
            return std::string(e.what());
        }
        return std::string("nothing");
    };
    const auto with = [&](const std::string& from, const std::string& to) {
        return refused(replaced(machine, from, to));
    };
    CHECK_THAT(with("version=\"2.0\"", "version=\"1.0\""), Contains("m.xml:3") && Contains("hwloc 2 or later"));
    CHECK_THAT(with("version=\"2.0\"", ""), Contains("m.xml:3") && Contains("'version' is missing"));
    CHECK_THAT(refused("<system version=\"1\"/>"), Contains("m.xml:1") && Contains("<topology version"));
    CHECK_THAT(refused("<topology version=\"2.0\"><object type=\"Machine\"/></topology>"), Contains("no NUMANode"));
    CHECK_THAT(with("os_index=\"1\" nodeset=\"0x00000002\" gp_index=\"5\"", "os_index=\"0\""),
               Contains("m.xml:10") && Contains("NUMANode 0 comes twice"));
    CHECK_THAT(with("pci_busid=\"0000:04:00.0\"", "pci_busid=\"0000:03:00.0\""),
               Contains("m.xml:21") && Contains("comes twice"));
    CHECK_THAT(with("0302 [10de:20b0]", "GPU"), Contains("m.xml:16") && Contains("pci_type"));
    CHECK_THAT(with("pci_link_speed=\"15.75\"", "pci_link_speed=\"fast\""), Contains("m.xml:21") && Contains("fast"));
    CHECK_THAT(with("nodeset=\"0x00000002\" gp_index=\"4\"", "nodeset=\"all\""), Contains("m.xml:9"));
    CHECK_THAT(with("nbobjs=\"3\"", "nbobjs=\"513\""), Contains("m.xml:45") && Contains("1 to 512"));
    CHECK_THAT(with("PCIDev:38 ", ""), Contains("m.xml:45") && Contains("2 objects and 9 values for nbobjs 3"));
    CHECK_THAT(with("OSDev:34", "OSDev:99"), Contains("m.xml:45") && Contains("object 99 is not there"));
    CHECK_THAT(with("OSDev:34", "OSDev:32"), Contains("m.xml:45") && Contains("comes twice")); // GPU 0 twice
    CHECK_THAT(with("300000 300000 1000000", "300000 wide 1000000"), Contains("m.xml:47") && Contains("wide"));
    // Halves of a matrix that contradict, in both orders, of two GPUs and of a GPU and a switch.
    for (const char* values : {"1000000 0 300000 50000", "1000000 50000 300000 0"})
        CHECK_THAT(with("1000000 50000 300000 50000", values),
                   Contains("m.xml:45") && Contains("between 31 and 34 are") && Contains("0 MB/s"));
    CHECK_THAT(with("50000 1000000 300000", "50000 1000000 0"), Contains("between 34 and 38 are 0 and 300000 MB/s"));
    CHECK_THAT(with("OSDev:34", "OSDev:31"), Contains("m.xml:45") && Contains("object 31 comes twice"));
    CHECK_THAT(with("PCIDev:38 ", "PCIDev:35 "), Contains("m.xml:45") && Contains("35 is no GPU, NVSwitch or package"));
    CHECK_THAT(with("1000000 50000 300000 50000", "1000000 1e305 300000 1e305"),
               Contains("m.xml:47:") && Contains("1e305"));
    CHECK_THAT(with("<indexes length=\"4\">0 1 ", "<indexes length=\"4\">0 0 "),
               Contains("m.xml:41") && Contains("object 0 comes twice"));
    const std::size_t at = machine.find("  <distances2 "), links = machine.find("  <distances2hetero"),
                      end = machine.find("</topology>");
    CHECK_THAT(with("</topology>", machine.substr(at, links - at) + "</topology>"),
               Contains("m.xml:50") && Contains("NUMALatency comes twice"));
    CHECK_THAT(with("</topology>", machine.substr(links, end - links) + "</topology>"),
               Contains("m.xml:50") && Contains("NVLinkBandwidth comes twice"));
    CHECK_THAT(with("gp_index=\"33\"", "gp_index=\"30\""), Contains("m.xml:21") && Contains("gp_index 30 comes twice"));
    CHECK_THAT(with("pci_busid=\"0000:04:00.0\"", "pci_busid=\"4\""), Contains("m.xml:21") && Contains("0000:3b:00.0"));
    CHECK_THAT(with("</topology>", ""), Contains("<topology> has no end"));
    CHECK_THAT(refused("<!DOCTYPE topology"), Contains("a document type has no end"));
    // NCCL's files still may not contain text.
    CHECK_THROWS_WITH(read_xml("<a>text</a>", "n.xml"), Contains("n.xml:1"));
    CHECK(read_xml("<a>te<b/>xt</a>", "n.xml", xml_form::with_text).text == "text");
}
