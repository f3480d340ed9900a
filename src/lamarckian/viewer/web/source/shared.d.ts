/* What the scripts of the report export once they are modules (see vite.config.mjs). */
declare module "*/page/charts.js" {
  import type { Chart } from "./records";
  export interface Figure extends HTMLElement {
    setMode(mode: "x" | "t"): void;
    update(next: Chart): boolean;
  }
  export const Charts: {
    make(data: Chart, axisName: string): Figure;
    short(value: number): string;
    clock(seconds: number): string;
  };
}
declare module "*/page/stage.js" {
  export interface Stage {
    figure: HTMLElement;
    item: { frames: unknown[]; count: number };
    show(tick: number): void;
  }
  export const Theatre: {
    makeStage(item: {
      title: string; game: string; frames: unknown[]; count: number; stride: number; cut: number;
      drawing: unknown; info: Record<string, unknown>;
    }): Stage;
  };
}
