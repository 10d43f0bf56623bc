import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Scanner;
import java.util.concurrent.locks.LockSupport;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;

/**
 * A member of a JGroups cluster. The arguments are those of member.h, without the window, and the stack's file.
 *
 * <p>It prints and reads what the other members do: see member.h.
 */
public final class JGroups implements Receiver {
    private static final int MEMBERS_MAX = 16;
    private static final int LATENCIES_MAX = 1 << 20;
    private static final int STAMP_BYTES = 24;
    private static final long END_LIMIT_NS = 20_000_000_000L;

    private final int self, members, size;
    private final double rate;
    private volatile long fromNs = Long.MAX_VALUE, untilNs = Long.MAX_VALUE;
    private final long[] next = new long[MEMBERS_MAX];
    private final long[] latencies = new long[LATENCIES_MAX];
    private int latencyCount;
    private long sent, delivered, wrong, digest;
    private volatile int ended;
    private volatile boolean isComplete;

    private JGroups(String[] arguments) {
        self = Integer.parseInt(arguments[0]);
        members = Integer.parseInt(arguments[1]);
        size = Integer.parseInt(arguments[2]);
        rate = Double.parseDouble(arguments[3]);
    }

    @Override
    public void viewAccepted(View view) {
        if (view.size() == members) isComplete = true;
    }

    @Override
    public synchronized void receive(Message message) {
        long now = System.nanoTime();
        var stamp = ByteBuffer.wrap(message.getArray(), message.getOffset(), message.getLength());
        stamp.order(ByteOrder.nativeOrder());
        int sender = stamp.getInt();
        boolean isLast = stamp.getInt() != 0;
        long number = stamp.getLong(), sentNs = stamp.getLong();
        if (number != next[sender]) wrong++;
        next[sender] = number + 1;
        digest = (digest ^ number * MEMBERS_MAX + sender) * 1099511628211L;
        if (now >= fromNs && now < untilNs) delivered++;
        if (rate > 0 && sentNs >= fromNs && !isLast && latencyCount < LATENCIES_MAX) latencies[latencyCount++] = now - sentNs;
        if (isLast) ended++;
    }

    private void send(JChannel channel) throws Exception {
        long start = System.nanoTime();
        for (long number = 0; ; number++) {
            if (rate > 0) {
                long turn = (long) (1e9 / (rate * members)) * self;
                long due = start + turn + (long) (number * 1e9 / rate);
                for (long now = System.nanoTime(); now < due; now = System.nanoTime()) LockSupport.parkNanos(due - now);
            }
            long now = System.nanoTime();
            boolean isLast = now >= untilNs;
            var bytes = ByteBuffer.allocate(Math.max(size, STAMP_BYTES)).order(ByteOrder.nativeOrder());
            bytes.putInt(self).putInt(isLast ? 1 : 0).putLong(number).putLong(now);
            channel.send(new BytesMessage(null, bytes.array()));
            if (isLast) return;
            if (now >= fromNs) sent++;
        }
    }

    private void run(String stack) throws Exception {
        var channel = new JChannel(stack);
        channel.setReceiver(this);
        channel.connect("bench");
        while (!isComplete) Thread.sleep(10);
        System.out.println("ready");
        var times = new Scanner(System.in);
        long from = times.nextLong();
        untilNs = times.nextLong();
        fromNs = from;
        send(channel);
        long limit = System.nanoTime() + END_LIMIT_NS;
        while (ended < members && System.nanoTime() < limit) Thread.sleep(1);
        synchronized (this) {
            var line = new StringBuilder();
            line.append("{\"sent\":").append(sent).append(",\"delivered\":").append(delivered);
            line.append(",\"wrong\":").append(wrong + members - ended);
            line.append(",\"digest\":\"").append(Long.toHexString(digest)).append("\",\"latencies_ns\":[");
            for (int place = 0; place < latencyCount; place++) line.append(place == 0 ? "" : ",").append(latencies[place]);
            System.out.println(line.append("]}"));
        }
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0);
    }

    public static void main(String[] arguments) throws Exception {
        new JGroups(arguments).run(arguments[4]);
    }
}
