import spread.*;
import java.net.InetAddress;
/** Exercises the Java client of the Spread Toolkit: prints one line for each message. */
public class Members {
  static String show(SpreadMessage m) throws Exception {
    StringBuilder b = new StringBuilder();
    if (m.isReject()) { b.append("reject ").append(Integer.toHexString(m.getServiceType())); }
    else if (m.isRegular()) {
      b.append("regular ").append(m.isSafe()?"safe":m.isAgreed()?"agreed":m.isCausal()?"causal":m.isFifo()?"fifo":m.isReliable()?"reliable":"unreliable");
      b.append(" from ").append(m.getSender()).append(" type ").append(m.getType()).append(" mismatch ").append(m.getEndianMismatch());
      for (SpreadGroup g : m.getGroups()) b.append(" ").append(g);
      b.append(" : ").append(m.getData().length);
    } else {
      MembershipInfo i = m.getMembershipInfo();
      b.append(i.isRegularMembership() ? "view " : i.isTransition() ? "transition " : "selfleave ").append(i.getGroup());
      if (i.isRegularMembership()) {
        b.append(i.isCausedByJoin()?" join "+i.getJoined():i.isCausedByLeave()?" leave "+i.getLeft():i.isCausedByDisconnect()?" disconnect "+i.getDisconnected():" network");
        b.append(" members"); for (SpreadGroup g : i.getMembers()) b.append(" ").append(g);
        b.append(" id ").append(i.getGroupID());
        if (i.isCausedByNetwork()) for (MembershipInfo.VirtualSynchronySet s : i.getVirtualSynchronySets()) { b.append(" {"); for (SpreadGroup g : s.getMembers()) b.append(" ").append(g); b.append(" }"); }
      }
    }
    return b.toString();
  }
  static SpreadConnection connect(int port, String name) throws Exception {
    SpreadConnection c = new SpreadConnection();
    c.connect(InetAddress.getByName("127.0.0.1"), port, name, false, true);
    System.out.println("connected " + c.getPrivateGroup());
    return c;
  }
  public static void main(String[] a) throws Exception {
    int port = Integer.parseInt(a[0]);
    SpreadConnection one = connect(port, "jone"), two = connect(port, "jtwo");
    SpreadGroup g = new SpreadGroup(), h = new SpreadGroup();
    g.join(one, "jg"); System.out.println("one: " + show(one.receive()));
    h.join(two, "jg"); System.out.println("two: " + show(two.receive())); System.out.println("one: " + show(one.receive()));
    for (int s = 0; s < 6; s++) {
      SpreadMessage m = new SpreadMessage(); m.setServiceType(1 << s); m.setType((short)(s - 3)); m.setData(new byte[1 << (s * 3)]); m.addGroup("jg"); m.addGroup(two.getPrivateGroup());
      one.multicast(m);
      System.out.println("one: " + show(one.receive())); System.out.println("two: " + show(two.receive()));
    }
    SpreadMessage m = new SpreadMessage(); m.setSafe(); m.setSelfDiscard(true); m.addGroup("jg"); m.setObject("object");
    one.multicast(m); System.out.println("two: " + two.receive().getObject());
    try { connect(port, "jone"); } catch (SpreadException e) { System.out.println("refused " + e.getMessage()); }
    try { connect(port, "a#b"); } catch (SpreadException e) { System.out.println("refused " + e.getMessage()); }
    h.leave(); System.out.println("two: " + show(two.receive())); System.out.println("one: " + show(one.receive()));
    SpreadGroup k = new SpreadGroup(); k.join(two, "jg"); two.receive(); one.receive();
    two.disconnect(); System.out.println("one: " + show(one.receive()));
    one.disconnect(); System.out.println("done");
  }
}
